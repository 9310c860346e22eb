"""The only part that knows YAML: a file in, an :class:`~drystone.model.options.ArchiveConfig` or every problem out."""
