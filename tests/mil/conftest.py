"""coremltools is imported quietly, before a test module imports it by itself."""

from equivalence.coreml.quiet import coremltools

coremltools()
