"""The guest-facing HTTP endpoint: answers guests from documents rendered when they change."""
