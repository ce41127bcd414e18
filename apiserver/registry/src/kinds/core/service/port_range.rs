//! The ports of every node that services have: one bitmap of their range, a `RangeAllocation` as upstream keeps it.

use crate::engine::error::RegistryError;
use crate::engine::node_ports::NodePorts;
use crate::engine::registry::Registry;
use apiserver_storage::{Entry, Key, ReadAt, Record, Write};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_schema::{Strictness, Tree, decode_json, encode_split};
use std::sync::Arc;

/// The key of upstream's bitmap.
const KEY: &str = "/registry/ranges/servicenodeports";

impl NodePorts {
    /// Numbers of allocated and of free ports in the server's range.
    pub async fn usage(registry: &Registry) -> Result<(usize, usize), RegistryError> {
        let range = PortRange::read(registry, ReadAt::Latest).await?;
        let taken = range.taken().count();
        Ok((taken, range.ports.all().count() - taken))
    }
}

/// The bitmap as read, with the entry it may be written over.
#[derive(Debug, Clone)]
pub(super) struct PortRange {
    ports: NodePorts,
    key: Key,
    read: Option<Arc<Entry>>,
    bits: Vec<u8>,
}

impl PortRange {
    /// The ports taken. A bitmap of an earlier range is carried over: ports outside of the range now are free.
    pub(super) async fn read(registry: &Registry, at: ReadAt) -> Result<Self, RegistryError> {
        let key = Key::parse(KEY).map_err(|error| RegistryError::Internal(error.to_string()))?;
        let found = registry.storage().get(&key, at).await;
        let found = found.map_err(|error| crate::engine::store::storage_error(&error))?;
        let ports = registry.node_ports();
        let mut range = Self::empty(ports, key);
        if let Some(entry) = &found.entry {
            let (was, bits) = content_of(&entry.record, ports);
            range.bits = bits;
            if was != ports {
                range = range.moved_from(was);
            }
        }
        range.read = found.entry;
        Ok(range)
    }

    fn empty(ports: NodePorts, key: Key) -> Self {
        Self {
            ports,
            key,
            read: None,
            bits: vec![0; ports.bitmap_bytes()],
        }
    }

    /// The same ports in the range of now, when the bits are of another.
    fn moved_from(self, was: NodePorts) -> Self {
        let mut moved = Self::empty(self.ports, self.key.clone());
        let old = Self { ports: was, ..self };
        old.taken().for_each(|port| moved.set(port, true));
        moved
    }

    /// The range as if no service had a port.
    pub(super) fn cleared(&self) -> Self {
        Self {
            read: self.read.clone(),
            ..Self::empty(self.ports, self.key.clone())
        }
    }

    /// The range.
    pub(super) fn ports(&self) -> NodePorts {
        self.ports
    }

    /// Bits count from the last byte's lowest, as in Go's `big.Int`.
    fn place(&self, port: i64) -> Option<(usize, u8)> {
        let bit = usize::try_from(port.checked_sub(i64::from(self.ports.first))?).ok()?;
        let byte = self.bits.len().checked_sub(1 + bit / 8)?;
        self.ports.contains(port).then_some((byte, 1 << (bit % 8)))
    }

    pub(super) fn is_set(&self, port: i64) -> bool {
        self.place(port)
            .is_some_and(|(byte, mask)| self.bits[byte] & mask != 0)
    }

    pub(super) fn set(&mut self, port: i64, taken: bool) {
        if let Some((byte, mask)) = self.place(port) {
            if taken {
                self.bits[byte] |= mask
            } else {
                self.bits[byte] &= !mask
            }
        }
    }

    /// The taken ports.
    pub(super) fn taken(&self) -> impl Iterator<Item = i64> {
        self.ports.all().filter(|port| self.is_set(*port))
    }

    /// A free port at or after a random one.
    pub(super) fn free(&self, random: u64) -> Option<i64> {
        let (first, size) = (
            i64::from(self.ports.first),
            u64::from(self.ports.last - self.ports.first) + 1,
        );
        let start = first + i64::try_from(random % size).unwrap_or(0);
        let from_start = self.ports.all().skip_while(|port| *port < start);
        let before = self.ports.all().take_while(|port| *port < start);
        from_start.chain(before).find(|port| !self.is_set(*port))
    }

    /// Reports whether a write would change nothing.
    pub(super) fn is_as_read(&self) -> bool {
        let (was, bits) = match &self.read {
            Some(entry) => content_of(&entry.record, self.ports),
            None => (self.ports, vec![0; self.bits.len()]),
        };
        was == self.ports && bits == self.bits
    }

    pub(super) fn write(self) -> Result<Write, RegistryError> {
        let record = record_of(self.ports, &self.bits)?;
        Ok(match self.read {
            Some(entry) => Write::update(self.key, entry.revision, record),
            None => Write::create(self.key, record),
        })
    }
}

fn record_of(ports: NodePorts, bits: &[u8]) -> Result<Record, RegistryError> {
    let used = bits.iter().position(|byte| *byte != 0).unwrap_or(bits.len());
    let text = format!(
        "{{\"kind\":\"RangeAllocation\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"range\":\"{ports}\",\"data\":\"{}\"}}",
        STANDARD.encode(&bits[used..])
    );
    let tree = Tree::from_json(&text).map_err(|error| RegistryError::Internal(error.to_string()))?;
    let split = encode_split(&tree);
    let header = ObjectHeader {
        key: ObjectKey::cluster("servicenodeports"),
        ..ObjectHeader::default()
    };
    Ok(Record {
        parts: [split.type_meta, split.head, split.tail],
        fingerprint: 0,
        header: Arc::new(header),
    })
}

/// The range a record is about, `otherwise` where it does not say, and its bits.
fn content_of(record: &Record, otherwise: NodePorts) -> (NodePorts, Vec<u8>) {
    let mut text = vec![b'{'];
    for part in [
        &record.parts[0],
        &record.parts[1],
        &Bytes::from_static(b"\"0\""),
        &record.parts[2],
    ] {
        text.extend_from_slice(part);
    }
    let untyped = Tree::untyped();
    let decoded = decode_json(untyped.schema(), untyped.ty(), &text, Strictness::Ignore);
    let (range, data) = decoded.map_or_else(
        |_| (String::new(), String::new()),
        |own| {
            let text = |name| own.tree.str_at(&[name]).to_owned();
            (text("range"), text("data"))
        },
    );
    let ports = NodePorts::parse(&range).unwrap_or(otherwise);
    let used = STANDARD.decode(data).unwrap_or_default();
    let mut bits = vec![0; ports.bitmap_bytes().saturating_sub(used.len())];
    bits.extend(used);
    (ports, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(ports: NodePorts) -> PortRange {
        PortRange::empty(ports, Key::parse(KEY).unwrap())
    }

    #[test]
    fn port_range_bitmap_round_trips() {
        let mut range = range(NodePorts::default());
        for port in [30000, 30001, 32767] {
            range.set(port, true);
        }
        let record = record_of(range.ports, &range.bits).unwrap();
        assert_eq!(
            content_of(&record, NodePorts::new(1, 2)),
            (range.ports, range.bits.clone())
        );
        assert!(range.is_set(32767) && !range.is_set(30002) && !range.is_set(29999));
        assert_eq!(range.free(0), Some(30002));
        assert_eq!(
            range.free(2767),
            Some(30002),
            "the search goes on at the beginning"
        );
    }

    #[test]
    fn port_range_keeps_allocations_outside_the_range() {
        let mut wide = range(NodePorts::new(100, 300));
        for port in [100, 200, 300] {
            wide.set(port, true);
        }
        let bits = wide.bits.clone();
        let mut narrow = range(NodePorts::new(150, 999));
        narrow.bits = bits;
        let moved = narrow.moved_from(wide.ports);
        assert_eq!(moved.taken().collect::<Vec<_>>(), [200, 300]);
        assert_eq!(moved.bits.len(), moved.ports.bitmap_bytes());
    }

    #[test]
    fn port_range_full_has_no_free_port() {
        let mut two = range(NodePorts::new(7, 8));
        two.set(7, true);
        assert_eq!(two.free(0), Some(8));
        two.set(8, true);
        assert_eq!(two.free(1), None);
    }
}
