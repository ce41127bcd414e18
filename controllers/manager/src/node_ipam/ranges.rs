//! Cutting an address range into equal parts.

use std::fmt;
use std::net::Ipv4Addr;

/// The parts of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ranges {
    first: u32,
    bits: u8,
    part_bits: u8,
}

impl Ranges {
    /// Parts with this prefix length of a range; of several ranges the first IPv4 one.
    pub(super) fn parse(cidrs: &str, part_bits: u8) -> Option<Self> {
        let (address, bits) = cidrs.split(',').find_map(parse)?;
        (bits <= part_bits && part_bits <= 32).then_some(Self {
            first: address & mask(bits),
            bits,
            part_bits,
        })
    }

    /// Number of parts.
    pub(super) fn count(self) -> u64 {
        1 << (self.part_bits - self.bits)
    }

    /// Gets what is taken.
    pub(super) fn nothing_taken(self) -> Taken {
        Taken {
            ranges: self,
            runs: Vec::new(),
        }
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.first), self.bits)
    }
}

/// Allocated parts of a range.
#[derive(Debug)]
pub(super) struct Taken {
    ranges: Ranges,
    /// Numbers of parts: from the first up to the second.
    runs: Vec<(u64, u64)>,
}

impl Taken {
    /// Takes every part that a range overlaps; what is no range takes none.
    pub(super) fn add(&mut self, cidr: &str) {
        let Some((address, bits)) = parse(cidr) else {
            return;
        };
        let Ranges { first, part_bits, .. } = self.ranges;
        let part = |address: u64| address.saturating_sub(u64::from(first)) >> (32 - part_bits);
        let start = u64::from(address & mask(bits));
        let end = start + (1 << (32 - bits));
        if end > u64::from(first) {
            self.runs.push((part(start), part(end - 1) + 1));
        }
    }

    /// The first part that overlaps nothing of what is taken.
    pub(super) fn first_free(&mut self) -> Option<String> {
        self.runs.sort_unstable();
        let mut free = 0;
        for (start, end) in &self.runs {
            if *start > free {
                break;
            }
            free = free.max(*end);
        }
        let Ranges { first, part_bits, .. } = self.ranges;
        if free >= self.ranges.count() {
            return None;
        }
        let start = u32::try_from(u64::from(first) + (free << (32 - part_bits))).ok()?;
        Some(format!("{}/{part_bits}", Ipv4Addr::from(start)))
    }
}

fn parse(cidr: &str) -> Option<(u32, u8)> {
    let (address, bits) = cidr.trim().split_once('/')?;
    let bits: u8 = bits.parse().ok().filter(|bits| *bits <= 32)?;
    Some((u32::from(address.parse::<Ipv4Addr>().ok()?), bits))
}

fn mask(bits: u8) -> u32 {
    if bits == 0 {
        0
    } else {
        u32::MAX << (32 - u32::from(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_range_is_allocated_once() {
        let ranges = Ranges::parse("10.244.0.0/22", 24).unwrap();
        let mut taken = ranges.nothing_taken();
        taken.add("10.244.1.0/24");
        let mut free = || {
            let range = taken.first_free()?;
            taken.add(&range);
            Some(range)
        };
        assert_eq!(free().as_deref(), Some("10.244.0.0/24"));
        assert_eq!(free().as_deref(), Some("10.244.2.0/24"));
        assert_eq!(free().as_deref(), Some("10.244.3.0/24"));
        assert_eq!(free(), None);
        assert_eq!(Ranges::parse("10.0.0.0/28", 24), None);
    }

    #[track_caller]
    fn check(taken: &str, free: Option<&str>) {
        let mut parts = Ranges::parse("10.244.0.0/22", 24).unwrap().nothing_taken();
        parts.add(taken);
        assert_eq!(parts.first_free().as_deref(), free, "{taken}");
    }

    #[test]
    fn node_range_overlap_is_taken() {
        check("10.244.0.128/25", Some("10.244.1.0/24"));
        check("10.244.0.0/23", Some("10.244.2.0/24"));
        check("10.0.0.0/8", None);
        check("10.244.4.0/22", Some("10.244.0.0/24"));
        check("nonsense", Some("10.244.0.0/24"));
        check("0.0.0.0/0", None);
    }
}
