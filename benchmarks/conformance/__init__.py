"""A conformance suite for privacy accountants: settings, truths, adapters, a runner."""
