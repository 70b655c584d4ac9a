"""Synthetic traces and logs from a profile: deterministic, coherent, without any real traffic."""

from __future__ import annotations

from kvtrace.synth.generate import SynthRequest, SynthTrace, generate
from kvtrace.synth.profile import Profile, Spread, Workload, sample_profile
from kvtrace.synth.samples import SAMPLE_SEED, build_samples, write_samples
from kvtrace.synth.story import Served, StoryEngine, serve

__all__ = [
    "SAMPLE_SEED",
    "Profile",
    "Served",
    "Spread",
    "StoryEngine",
    "SynthRequest",
    "SynthTrace",
    "Workload",
    "build_samples",
    "generate",
    "sample_profile",
    "serve",
    "write_samples",
]
