"""Reports: text, HTML, JUnit, reprod_log files."""
