"""Synthetic traces and logs from a profile: deterministic, coherent, without any real traffic."""

from __future__ import annotations

from kvtrace.synth.derive import Derived, derive_profile
from kvtrace.synth.formats import FORMATS, WRITERS, Scene, Writer
from kvtrace.synth.generate import SynthRequest, SynthTrace, generate
from kvtrace.synth.make import Order, sample_order, write_story
from kvtrace.synth.profile import Profile, Quantiles, Spread, Workload, sample_profile
from kvtrace.synth.profilefile import Loaded, dump_profile, load_profile, read_profile
from kvtrace.synth.samples import SAMPLE_SEED, build_samples, write_samples
from kvtrace.synth.story import Served, Story, StoryEngine, serve

__all__ = [
    "FORMATS",
    "SAMPLE_SEED",
    "WRITERS",
    "Derived",
    "Loaded",
    "Order",
    "Profile",
    "Quantiles",
    "Scene",
    "Served",
    "Spread",
    "Story",
    "StoryEngine",
    "SynthRequest",
    "SynthTrace",
    "Workload",
    "Writer",
    "build_samples",
    "derive_profile",
    "dump_profile",
    "generate",
    "load_profile",
    "read_profile",
    "sample_order",
    "sample_profile",
    "serve",
    "write_samples",
    "write_story",
]
