"""What knows torch, and in a folder for each, an engine. `import coldsnap` imports none of it."""
