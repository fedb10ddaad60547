//! Two ends of streams, and what becomes of nonsense.
