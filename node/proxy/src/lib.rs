//! Service addresses to endpoints, in nftables.
