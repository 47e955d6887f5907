"""One module per command: `add_arguments(parser)` and `run(args, config) -> exit code`."""
