//! The assembled control plane as a library: builder, identities, simulator.
