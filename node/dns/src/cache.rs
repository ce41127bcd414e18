//! Answers of other name servers, kept for as long as they say and not longer than [`MAX_SECONDS`].
//!
//! Bounded in entries and in bytes; found names and denials have a half each, so that random names push out no
//! answer. Entries leave in the order they came.

use crate::answer::code;
use crate::query::{HEADER, kind, read_u16, skip_name};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Longest life of answers and of denials, as in kubeadm's Corefile (`cache 30`).
const MAX_SECONDS: u32 = 30;
/// A name server's failure is remembered for as long as RFC 9520 demands, so that a broken zone is not requested by
/// every packet.
pub const FAILURE: Duration = Duration::from_secs(1);
/// Entries of each half; CoreDNS' size.
const MAX_ENTRIES: usize = 9984;
/// Bytes of each half.
const MAX_BYTES: usize = 8 << 20;

/// A question as name servers receive it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Lower case, without the last dot.
    pub name: Box<str>,
    pub kind: u16,
    pub edns: bool,
    pub dnssec_ok: bool,
    pub checking_disabled: bool,
}

/// An answer as it came, with the positions of its times to live.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub bytes: Box<[u8]>,
    ttls: Box<[usize]>,
    /// Time for which it may be served from the cache; zero if not at all.
    pub lifetime: Duration,
}

impl Reply {
    /// Reads a message; `None` where its records cannot be followed to the end.
    pub fn read(bytes: Vec<u8>) -> Option<Self> {
        let counts = [6, 8, 10].map(|at| read_u16(&bytes, at));
        let mut at = HEADER;
        for _ in 0..read_u16(&bytes, 4)? {
            at = skip_name(&bytes, at)? + 4;
        }
        let mut ttls = Vec::new();
        let (mut shortest, mut denied) = (MAX_SECONDS, false);
        for (section, count) in counts.into_iter().enumerate() {
            for _ in 0..count? {
                let fixed = skip_name(&bytes, at)?;
                let length = usize::from(read_u16(&bytes, fixed + 8)?);
                let data = bytes.get(fixed + 10..fixed + 10 + length)?;
                at = fixed + 10 + length;
                let kind_of = read_u16(&bytes, fixed)?;
                // The TTL field of OPT has flags (RFC 6891, 6.1.3): it must neither age nor bound the lifetime.
                if kind_of == kind::OPT {
                    continue;
                }
                ttls.push(fixed + 4);
                shortest = shortest.min(read_u32(&bytes, fixed + 4)?);
                if section == 1 && kind_of == kind::SOA {
                    let minimum = data.last_chunk().map(|last| u32::from_be_bytes(*last))?;
                    // RFC 2308, 5: a denial lives for the smaller one of the SOA's TTL and its MINIMUM field,
                    // which is last.
                    shortest = shortest.min(minimum);
                    denied = true;
                }
            }
        }
        let (rcode, empty) = (bytes[3] & 0x0f, counts[0] == Some(0));
        let lifetime = match rcode {
            // Without a start of authority the time for which a denial holds is unknown (RFC 2308).
            code::NO_ERROR if !empty || denied => Duration::from_secs(shortest.into()),
            code::NAME_ERROR if denied => Duration::from_secs(shortest.into()),
            code::SERVER_FAILURE => FAILURE,
            _ => Duration::ZERO,
        };
        let truncated = bytes[2] & 2 != 0;
        Some(Self {
            bytes: bytes.into(),
            ttls: ttls.into(),
            // A part of an answer must not be served as the whole; the question over TCP gets an entry of its
            // own.
            lifetime: if truncated { Duration::ZERO } else { lifetime },
        })
    }

    /// The message with its times to live shortened by its age.
    pub fn aged(&self, age: Duration) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        let age = u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
        for at in &self.ttls {
            let left = read_u32(&bytes, *at).unwrap_or(0).saturating_sub(age);
            bytes[*at..*at + 4].copy_from_slice(&left.to_be_bytes());
        }
        bytes
    }

    fn is_denial(&self) -> bool {
        self.bytes[3] & 0x0f != code::NO_ERROR || read_u16(&self.bytes, 6) == Some(0)
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Found names and denials.
#[derive(Debug, Default)]
pub struct Cache {
    found: Half,
    denied: Half,
}

#[derive(Debug, Default)]
struct Half {
    entries: HashMap<Arc<Key>, (Arc<Reply>, Duration)>,
    /// Every entry once, oldest first.
    order: VecDeque<Arc<Key>>,
    bytes: usize,
}

impl Cache {
    /// The answer and its age, while it is good.
    pub fn get(&self, key: &Key, now: Duration) -> Option<(Arc<Reply>, Duration)> {
        let entry = |half: &Half| {
            let (reply, at) = half.entries.get(key)?;
            let age = now.saturating_sub(*at);
            (age < reply.lifetime).then(|| (Arc::clone(reply), age))
        };
        entry(&self.found).or_else(|| entry(&self.denied))
    }

    pub fn put(&mut self, key: Key, reply: Arc<Reply>, now: Duration) {
        if reply.lifetime.is_zero() {
            return;
        }
        let (half, other) = if reply.is_denial() {
            (&mut self.denied, &mut self.found)
        } else {
            (&mut self.found, &mut self.denied)
        };
        // One half per key: `get` prefers found names, and an old one would hide the denial until it expires.
        other.forget(&key);
        half.put(Arc::new(key), reply, now);
    }
}

impl Half {
    fn put(&mut self, key: Arc<Key>, reply: Arc<Reply>, now: Duration) {
        self.bytes += size(&key, &reply);
        if let Some((old, _)) = self.entries.insert(Arc::clone(&key), (reply, now)) {
            // The key stays where it is in `order`, which has every key once; a second one would count its bytes twice.
            self.bytes -= size(&key, &old);
        } else {
            self.order.push_back(key);
        }
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            if let Some((reply, _)) = self.entries.remove(&oldest) {
                self.bytes -= size(&oldest, &reply);
            }
        }
    }

    /// Rare: a name that was denied is found, or the other way round.
    fn forget(&mut self, key: &Key) {
        if let Some((reply, _)) = self.entries.remove(key) {
            self.bytes -= size(key, &reply);
            self.order.retain(|own| **own != *key);
        }
    }
}

fn size(key: &Key, reply: &Reply) -> usize {
    size_of::<Key>()
        + size_of::<Reply>()
        + key.name.len()
        + reply.bytes.len()
        + reply.ttls.len() * size_of::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            name: name.into(),
            kind: kind::A,
            edns: false,
            dnssec_ok: false,
            checking_disabled: false,
        }
    }

    /// One question for the root, these records with a time to live and data each.
    fn message(rcode: u8, sections: [&[(u16, u32, &[u8])]; 2]) -> Vec<u8> {
        let count = |section: &[(u16, u32, &[u8])]| u8::try_from(section.len()).unwrap();
        let mut out = vec![
            0,
            0,
            0x81,
            0x80 | rcode,
            0,
            1,
            0,
            count(sections[0]),
            0,
            count(sections[1]),
            0,
            0,
        ];
        out.extend([0, 0, 1, 0, 1]);
        for (kind, ttl, data) in sections.into_iter().flatten() {
            out.push(0);
            out.extend(kind.to_be_bytes());
            out.extend([0, 1]);
            out.extend(ttl.to_be_bytes());
            out.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            out.extend(*data);
        }
        out
    }

    const A: &[u8] = &[1, 2, 3, 4];

    fn soa(minimum: u32) -> Vec<u8> {
        [&[0; 18][..], &minimum.to_be_bytes()].concat()
    }

    #[track_caller]
    fn check(message: Vec<u8>, seconds: u64) {
        assert_eq!(
            Reply::read(message).unwrap().lifetime,
            Duration::from_secs(seconds)
        );
    }

    #[test]
    fn lifetime_is_the_shortest_there_is() {
        check(message(0, [&[(1, 20, A), (1, 7, A)], &[]]), 7);
        check(message(0, [&[(1, 86400, A)], &[]]), 30);
        check(message(0, [&[(1, 0, A)], &[]]), 0);
        check(message(3, [&[], &[(6, 900, &soa(12)[..])]]), 12);
        check(message(0, [&[], &[(6, 9, &soa(12)[..])]]), 9);
        check(message(3, [&[], &[]]), 0);
        check(message(0, [&[], &[(2, 900, &[0])]]), 0);
        check(message(2, [&[], &[]]), 1);
        check(message(5, [&[], &[]]), 0);
        let mut cut = message(0, [&[(1, 20, A)], &[]]);
        cut[2] |= 2;
        check(cut, 0);
    }

    #[test]
    fn reply_ages_and_ends() {
        let mut cache = Cache::default();
        let reply = Reply::read(message(0, [&[(1, 20, A)], &[]])).unwrap();
        cache.put(key("a"), Arc::new(reply), Duration::from_secs(100));
        let (reply, age) = cache.get(&key("a"), Duration::from_secs(108)).unwrap();
        let aged = Reply::read(reply.aged(age)).unwrap();
        assert_eq!(aged.lifetime, Duration::from_secs(12));
        assert!(cache.get(&key("a"), Duration::from_secs(120)).is_none());
    }

    #[test]
    fn cache_is_bounded_and_denials_push_out_no_answer() {
        let mut cache = Cache::default();
        let found = Arc::new(Reply::read(message(0, [&[(1, 20, A)], &[]])).unwrap());
        let denied = Arc::new(Reply::read(message(3, [&[], &[(6, 20, &soa(20)[..])]])).unwrap());
        cache.put(key("kept"), found, Duration::ZERO);
        for index in 0..MAX_ENTRIES * 2 {
            cache.put(
                key(&format!("{index}.example")),
                Arc::clone(&denied),
                Duration::ZERO,
            );
        }
        assert!(cache.get(&key("kept"), Duration::ZERO).is_some());
        assert_eq!(
            (cache.denied.entries.len(), cache.denied.order.len()),
            (MAX_ENTRIES, MAX_ENTRIES)
        );
        let large = message(0, [&[(16, 20, &[7; 60_000][..])], &[]]);
        let large = Arc::new(Reply::read(large).unwrap());
        for index in 0..200 {
            cache.put(key(&format!("{index}.large")), Arc::clone(&large), Duration::ZERO);
        }
        assert!(cache.found.bytes <= MAX_BYTES, "{}", cache.found.bytes);
    }

    #[test]
    fn denial_that_is_found_later_is_replaced() {
        let mut cache = Cache::default();
        let found = Arc::new(Reply::read(message(0, [&[(1, 20, A)], &[]])).unwrap());
        let denied = Arc::new(Reply::read(message(3, [&[], &[(6, 20, &soa(20)[..])]])).unwrap());
        for reply in [&denied, &found, &denied, &found] {
            cache.put(key("a"), Arc::clone(reply), Duration::ZERO);
            assert_eq!(&cache.get(&key("a"), Duration::ZERO).unwrap().0, reply);
        }
        assert!(cache.denied.entries.is_empty() && cache.denied.order.is_empty() && cache.denied.bytes == 0);
    }

    #[test]
    fn dns_cache_message_fuzz_never_panics() {
        let sample = message(3, [&[(1, 20, A)], &[(6, 20, &soa(20)[..])]]);
        machinery_fuzz::fuzz([sample], |input| {
            if input.len() < HEADER {
                return;
            }
            let aged = || Some(Reply::read(input.to_vec())?.aged(Duration::from_secs(5)));
            if let Some(aged) = machinery_fuzz::in_proportion(input, 16, aged) {
                assert_eq!(aged.len(), input.len());
            }
        });
    }
}
