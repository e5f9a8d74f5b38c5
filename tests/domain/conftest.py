"""Properties are tried on machines of any speed: no deadline for one example."""

from hypothesis import settings

settings.register_profile("domain", deadline=None)
settings.load_profile("domain")
