//! The zone on disk, so that an agent that starts while the API server is away answers the cluster's names.
//!
//! One file, replaced whole: a line with the version, the cluster domain and a checksum, then one line of JSON per
//! service. A file that cannot be read to its end is not used at all.

use crate::zone::{OwnedRecord, Record, Zone};
use machinery_meta::ObjectKey;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::{Arc, RwLock};

const FORMAT: &str = "knarr-dns-zone-1";
/// Beyond it the largest services are not written, and nothing is read: some 300,000 services.
const MAX_BYTES: u64 = 64 << 20;

/// The zone was not written or not read.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    #[error("reading or writing the saved zone")]
    File(#[from] io::Error),
    #[error("the saved zone is of another format or of another cluster domain")]
    Foreign,
    #[error("the saved zone is damaged")]
    Damaged,
    #[error("the zone is larger than {MAX_BYTES} bytes")]
    TooLarge,
}

#[derive(Serialize, Deserialize)]
struct SavedLine<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    service: Cow<'a, str>,
    #[serde(borrow)]
    records: Vec<(Cow<'a, str>, Saved<'a>)>,
}

#[derive(Serialize, Deserialize)]
enum Saved<'a> {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Srv(u16, #[serde(borrow)] Cow<'a, str>),
    Cname(#[serde(borrow)] Cow<'a, str>),
    Ptr(#[serde(borrow)] Cow<'a, str>),
    Exists,
}

impl<'a> Saved<'a> {
    /// The zone's own records (`NS`, `SOA`, `TXT`) are recreated with every zone.
    fn of(record: &'a Record) -> Option<Self> {
        Some(match record {
            Record::A(address) => Self::A(*address),
            Record::Aaaa(address) => Self::Aaaa(*address),
            Record::Srv { port, target } => Self::Srv(*port, Cow::Borrowed(target)),
            Record::Cname(name) => Self::Cname(Cow::Borrowed(name)),
            Record::Ptr(name) => Self::Ptr(Cow::Borrowed(name)),
            Record::Exists => Self::Exists,
            Record::Ns(_) | Record::Txt(_) | Record::Soa { .. } => return None,
        })
    }

    fn record(self) -> Record {
        match self {
            Self::A(address) => Record::A(address),
            Self::Aaaa(address) => Record::Aaaa(address),
            Self::Srv(port, target) => Record::Srv {
                port,
                target: target.into(),
            },
            Self::Cname(name) => Record::Cname(name.into()),
            Self::Ptr(name) => Record::Ptr(name.into()),
            Self::Exists => Record::Exists,
        }
    }
}

/// Writes the zone; it blocks. Where it is too large the services with the most records are left out.
pub fn save(zone: &RwLock<Zone>, path: &Path) -> Result<(), SavedError> {
    let bytes = encode(zone, MAX_BYTES)?;
    // Others learn nothing from it that the API would not show them; still it is private.
    Ok(node_sys::fs::write_atomically(path, &bytes, 0o600)?)
}

/// Reads a zone of this domain; it blocks. Names that it lacks may have come since it was saved: it is not complete.
pub fn load(path: &Path, domain: &str) -> Result<Zone, SavedError> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    // One byte more than the bound was read, so that a longer file is noticed.
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(SavedError::TooLarge);
    }
    decode(&bytes, domain)
}

/// The zone as bytes, at most so many. It is held for one service at a time, so that questions are answered meanwhile.
fn encode(zone: &RwLock<Zone>, max_bytes: u64) -> Result<Vec<u8>, SavedError> {
    let hold = || zone.read().expect("nothing panics while it is held");
    let mut services: Vec<(usize, ObjectKey)> = hold()
        .brought_by_service()
        .map(|(key, brought)| (brought.len(), key.clone()))
        .collect();
    // The smallest first: a full file leaves out few large services and not many small ones.
    services.sort_unstable();
    let domain = hold().domain().to_owned();
    let head = |checksum: u32| format!("{FORMAT} {domain} {checksum:08x}\n").into_bytes();
    let room = max_bytes.saturating_sub(u64::try_from(head(0).len()).unwrap_or(u64::MAX));
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let mut lines = Vec::new();
    for (at, (_, key)) in services.iter().enumerate() {
        let before = lines.len();
        // Locked once per service: a service that went meanwhile is left out, and one that came is in the next
        // save.
        if let Some(brought) = hold().brought_by(key) {
            write_line(&mut lines, key, brought)?;
        }
        if lines.len() > room {
            lines.truncate(before);
            tracing::warn!(
                services = services.len() - at,
                "left out of the saved zone, which is full"
            );
            break;
        }
    }
    let mut out = head(crc32c::crc32c(&lines));
    out.append(&mut lines);
    Ok(out)
}

fn write_line(lines: &mut Vec<u8>, key: &ObjectKey, brought: &OwnedRecord) -> Result<(), SavedError> {
    let records = brought
        .iter()
        .filter_map(|(name, record)| Some((Cow::Borrowed(&**name), Saved::of(record)?)));
    let line = SavedLine {
        namespace: Cow::Borrowed(&key.namespace),
        service: Cow::Borrowed(&key.name),
        records: records.collect(),
    };
    serde_json::to_writer(&mut *lines, &line).map_err(io::Error::from)?;
    lines.push(b'\n');
    Ok(())
}

fn decode(bytes: &[u8], domain: &str) -> Result<Zone, SavedError> {
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or(SavedError::Foreign)?;
    let (head, lines) = (&bytes[..end], &bytes[end + 1..]);
    let head = std::str::from_utf8(head).map_err(|_| SavedError::Foreign)?;
    let Some(checksum) = head.strip_prefix(&format!("{FORMAT} {domain} ")) else {
        return Err(SavedError::Foreign);
    };
    if u32::from_str_radix(checksum, 16) != Ok(crc32c::crc32c(lines)) {
        return Err(SavedError::Damaged);
    }
    let mut zone = Zone::new(domain);
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: SavedLine<'_> = serde_json::from_slice(line).map_err(|_| SavedError::Damaged)?;
        let key = ObjectKey::new(&*line.namespace, &*line.service);
        let records = line.records.into_iter();
        // Records of one name lie together and share it.
        let mut last: Arc<str> = "".into();
        let brought: OwnedRecord = records
            .map(|(name, saved)| {
                if *last != *name {
                    last = name.into();
                }
                (Arc::clone(&last), saved.record())
            })
            .collect();
        zone.put(&key, brought);
    }
    Ok(zone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::zone;

    #[test]
    fn saved_zone_is_the_same_zone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zone");
        let zone = RwLock::new(zone());
        save(&zone, &path).unwrap();
        let loaded = load(&path, "cluster.local").unwrap();
        let all = |zone: &Zone| {
            let mut all: Vec<_> = zone
                .brought_by_service()
                .map(|(key, brought)| (key.clone(), brought.clone()))
                .collect();
            all.sort();
            all
        };
        assert_eq!(all(&loaded), all(&zone.read().unwrap()));
        assert!(matches!(load(&path, "other.local"), Err(SavedError::Foreign)));
    }

    #[test]
    fn saved_zone_that_is_damaged_is_not_used() {
        let whole = encode(&RwLock::new(zone()), MAX_BYTES).unwrap();
        for end in 0..whole.len() {
            assert!(decode(&whole[..end], "cluster.local").is_err(), "cut at {end}");
        }
        for at in (0..whole.len()).step_by(7) {
            let mut changed = whole.clone();
            changed[at] ^= 4;
            assert!(decode(&changed, "cluster.local").is_err(), "changed at {at}");
        }
    }

    #[test]
    fn saved_zone_that_is_full_lacks_the_largest_services() {
        let whole = RwLock::new(zone());
        let all = encode(&whole, MAX_BYTES).unwrap();
        let sizes = |zone: &Zone| {
            let mut sizes: Vec<usize> = zone.brought_by_service().map(|(_, own)| own.len()).collect();
            sizes.sort_unstable();
            sizes
        };
        let before = sizes(&whole.read().unwrap());
        let cut = encode(&whole, u64::try_from(all.len()).unwrap() - 1).unwrap();
        let loaded = sizes(&decode(&cut, "cluster.local").unwrap());
        assert_eq!(loaded, before[..before.len() - 1]);
    }
}
