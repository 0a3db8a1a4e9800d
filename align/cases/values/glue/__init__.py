"""Values of GLUE's files beside the tasks themselves."""
