"""``include/pipelines.yaml`` as frozen, validated models."""
