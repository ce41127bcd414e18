//! The one handle for clock, sleep, randomness, spawning, cancelling and disk, real and simulated.
