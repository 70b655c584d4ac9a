"""Private prefix caches against one shared pool: routing, hits at any capacity, their table."""

from kvtrace.reuse.pooling.routing import ROUTINGS, Routing, route
from kvtrace.reuse.pooling.table import Level, PoolPlan, build_pool_hits, default_totals

__all__ = ["ROUTINGS", "Level", "PoolPlan", "Routing", "build_pool_hits", "default_totals", "route"]
