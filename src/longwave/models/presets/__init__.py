"""Presets: every public function here returns the Spec of a model."""
