"""What keeps images and reports in order: what images take and who uses them, and every page again."""
