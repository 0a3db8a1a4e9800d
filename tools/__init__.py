"""The commands; an installation has them as `sot_paddle_tools`."""
