//! Cutting an address range into equal parts.

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

    /// The first part that overlaps none of these.
    pub(super) fn first_free(&self, taken: &[String]) -> Option<String> {
        let mut taken: Vec<(u32, u8)> = taken.iter().filter_map(|cidr| parse(cidr)).collect();
        taken.sort_unstable();
        let parts = 1u64 << (self.part_bits - self.bits);
        let step = 1u64 << (32 - self.part_bits);
        (0..parts).find_map(|part| {
            let start = u32::try_from(u64::from(self.first) + part * step).ok()?;
            let free = !taken.iter().any(|(address, bits)| {
                let common = mask((*bits).min(self.part_bits));
                start & common == address & common
            });
            free.then(|| format!("{}/{}", Ipv4Addr::from(start), self.part_bits))
        })
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
    fn parts_are_given_once() {
        let ranges = Ranges::parse("10.244.0.0/22", 24).unwrap();
        let mut taken = vec!["10.244.1.0/24".to_owned()];
        let mut free = || {
            let range = ranges.first_free(&taken)?;
            taken.push(range.clone());
            Some(range)
        };
        assert_eq!(free().as_deref(), Some("10.244.0.0/24"));
        assert_eq!(free().as_deref(), Some("10.244.2.0/24"));
        assert_eq!(free().as_deref(), Some("10.244.3.0/24"));
        assert_eq!(free(), None);
        assert_eq!(Ranges::parse("10.0.0.0/28", 24), None);
    }
}
