"""Trials in containers of Podman, through its service."""
