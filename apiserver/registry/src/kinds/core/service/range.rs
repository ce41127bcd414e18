//! The ranges of ServiceCIDRs, and the order in which their addresses are tried.

use super::addresses::store;
use crate::engine::error::RegistryError;
use crate::engine::options::ListOptions;
use crate::engine::registry::Registry;
use crate::engine::scope::Scope;
use apiserver_storage::Entry;
use machinery_schema::{Ref, Tree};
use std::net::Ipv4Addr;

/// Random picks before the range is walked.
pub(super) const RANDOM_PICKS: usize = 16;
/// The lower end of a range is left to addresses people choose: a sixteenth of it, at least and at most so many.
const STATIC_BAND: (u32, u32) = (16, 256);

/// An IPv4 range by its first address and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    base: u32,
    bits: u32,
}

impl Range {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (base, bits) = text.split_once('/')?;
        let (base, bits): (Ipv4Addr, u32) = (base.parse().ok()?, bits.parse().ok()?);
        (bits <= 32).then(|| Self {
            base: u32::from(base),
            bits,
        })
    }

    fn size(self) -> u32 {
        1_u32.checked_shl(32 - self.bits).unwrap_or(0)
    }

    /// Number of addresses that services may have.
    pub(super) fn capacity(self) -> usize {
        usize::try_from(self.size().saturating_sub(2)).unwrap_or(usize::MAX)
    }

    /// An address of it that a service may have.
    pub(super) fn contains(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.base);
        // No service has the network's own address or the last one.
        offset > 0 && offset < self.size().saturating_sub(1)
    }

    fn band(self) -> u32 {
        let (least, most) = STATIC_BAND;
        if self.size() < least * 2 {
            1
        } else {
            (self.size() / 16).clamp(least, most)
        }
    }

    /// Addresses in the order they are tried: some at random, then all above the band, then those below.
    pub(super) fn candidates(self, random: u64) -> impl Iterator<Item = Ipv4Addr> {
        let (band, end) = (self.band(), self.size().saturating_sub(1));
        let upper = end.saturating_sub(band).max(1);
        let mut state = random;
        let picks = std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            band + u32::try_from(state >> 33).unwrap_or(0) % upper
        });
        picks
            .take(RANDOM_PICKS)
            .chain(band..end)
            .chain(1..band)
            .map(move |offset| Ipv4Addr::from(self.base + offset))
    }

    /// The ranges of every ServiceCIDR.
    pub(super) async fn all(registry: &Registry) -> Result<Vec<Self>, RegistryError> {
        Self::of(registry, |_, _| true).await
    }

    /// The ranges that addresses are taken from: not those of a ServiceCIDR that goes, or that says it is not ready. One
    /// that says nothing is: no controller may be running.
    pub(super) async fn open(registry: &Registry) -> Result<Vec<Self>, RegistryError> {
        Self::of(registry, |entry, cidr| {
            let conditions = cidr
                .get("status")
                .into_iter()
                .flat_map(|own| own.list("conditions"));
            let mut ready = conditions.filter(|own| own.str("type") == "Ready");
            !entry.record.header.is_deleting() && ready.all(|own| own.str("status") == "True")
        })
        .await
    }

    async fn of(
        registry: &Registry,
        wanted: impl Fn(&Entry, &Tree) -> bool,
    ) -> Result<Vec<Self>, RegistryError> {
        let cidrs = store(registry, "servicecidrs")?;
        let page = cidrs.list(&Scope::Cluster, &ListOptions::default()).await?;
        let mut ranges = Vec::new();
        for entry in &page.entries {
            let object = cidrs.decode(entry)?;
            if wanted(entry, &object) {
                let listed = object.get("spec").into_iter().flat_map(|spec| spec.list("cidrs"));
                ranges.extend(listed.filter_map(Ref::as_str).filter_map(Self::parse));
            }
        }
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_offer_their_upper_part_first() {
        let range = Range::parse("10.96.0.0/16").unwrap();
        assert_eq!(range.band(), 256);
        assert!(
            range
                .candidates(7)
                .take(100)
                .all(|address| u32::from(address) - range.base >= 256)
        );
        assert!(range.contains(Ipv4Addr::new(10, 96, 0, 1)));
        assert!(!range.contains(Ipv4Addr::new(10, 96, 0, 0)));
        assert!(!range.contains(Ipv4Addr::new(10, 96, 255, 255)));
        let small = Range::parse("10.0.0.0/30").unwrap();
        let all: std::collections::BTreeSet<_> = small.candidates(1).collect();
        assert_eq!(
            all,
            [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)].into()
        );
    }
}
