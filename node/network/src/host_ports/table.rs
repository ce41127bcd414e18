//! The nftables table: its text, its elements in the kernel's form, and what changes of them. Pure.
//!
//! Only packets to an address of the node are looked at, and of those to its loopback addresses only what the node itself
//! sends. A packet that a pod sends to itself, or the node from a loopback address, leaves with an address of the node, or
//! the answer would not come back; every other keeps its source. Only the first packet of a connection passes here.

use super::ports::{Entries, PortKey, Protocol, Target};
use crate::config::POD_LINKS;
use ipnet::Ipv4Net;
use node_sys::nftables::{ElementBatch, ElementData, ElementVerb, PresentElement};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// The table; nothing outside it is touched.
pub const TABLE: &str = "knarr-host-ports";
/// Ports of one address of the node.
pub const AT_ADDRESS: &str = "at_address";
/// Ports of every address of the node.
pub const AT_ANY: &str = "at_any";
/// Each pod that has a port, twice: as a packet's source and destination.
const HAIRPIN: &str = "hairpin";

/// Elements in one command hold at most this many, so that nft's parser stays quick.
const CHUNK: usize = 4096;

const MAPS: &str = "\
 map at_address { typeof ip daddr . ip protocol . th dport : ip daddr . th dport; }
 map at_any { typeof ip protocol . th dport : ip daddr . th dport; }
 set hairpin { type ipv4_addr . ipv4_addr; }
";

/// The whole table as text for `nft`, replacing what is there in one transaction.
pub fn whole(reserved: &[Ipv4Net], entries: &Entries) -> String {
    let mut out = format!("table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{MAPS}");
    chains(&mut out, reserved);
    out.push_str("}\n");
    let (exact, any): (Vec<_>, Vec<_>) = entries.iter().partition(|(key, _)| key.address.is_some());
    additions(&mut out, AT_ADDRESS, &exact, |(key, target)| {
        format!("{}{}", address_before(**key), place_to_target(**key, **target))
    });
    additions(&mut out, AT_ANY, &any, |(key, target)| {
        place_to_target(**key, **target)
    });
    let pods: Vec<Ipv4Addr> = addresses(entries).into_iter().collect();
    additions(&mut out, HAIRPIN, &pods, |address| {
        format!("{address} . {address}")
    });
    out
}

/// Host ports come before node ports, as a pod with one may be trusted more than a maker of services. Loopback
/// addresses but the first are left to programs of the node, unless a pod requests one of them by its address.
fn chains(out: &mut String, reserved: &[Ipv4Net]) {
    out.push_str(" chain translate {\n");
    if !reserved.is_empty() {
        let ranges: Vec<String> = Ipv4Net::aggregate(&reserved.to_vec())
            .iter()
            .map(ToString::to_string)
            .collect();
        let _ = writeln!(out, "  ip daddr {{ {} }} return", ranges.join(", "));
    }
    for (key, map, before) in [
        ("ip daddr . ", AT_ADDRESS, ""),
        ("", AT_ANY, "  ip daddr 127.0.0.2-127.255.255.255 return\n"),
    ] {
        out.push_str(before);
        for protocol in Protocol::ALL.map(Protocol::lower) {
            let _ = writeln!(
                out,
                "  meta l4proto {protocol} dnat ip to {key}meta l4proto . th dport map @{map}"
            );
        }
    }
    let _ = write!(
        out,
        " }}
 chain prerouting {{
  type nat hook prerouting priority -110; policy accept;
  fib daddr type local ip daddr != 127.0.0.0/8 goto translate
 }}
 chain nat_output {{
  type nat hook output priority -110; policy accept;
  fib daddr type local goto translate
 }}
 chain postrouting {{
  type nat hook postrouting priority srcnat; policy accept;
  ct status dnat ip saddr . ip daddr @{HAIRPIN} masquerade fully-random
  ct status dnat ip saddr 127.0.0.0/8 oifname \"{POD_LINKS}*\" masquerade fully-random
 }}
 chain loopback {{
  type filter hook prerouting priority raw; policy accept;
  iifname \"{POD_LINKS}*\" ip saddr 127.0.0.0/8 drop
  iifname \"{POD_LINKS}*\" ip daddr 127.0.0.0/8 drop
 }}
"
    );
}

fn additions<T>(out: &mut String, set: &str, elements: &[T], text: impl Fn(&T) -> String) {
    for chunk in elements.chunks(CHUNK) {
        let elements: Vec<String> = chunk.iter().map(&text).collect();
        let _ = writeln!(out, "add element ip {TABLE} {set} {{ {} }}", elements.join(", "));
    }
}

fn address_before(key: PortKey) -> String {
    key.address
        .map_or(String::new(), |address| format!("{address} . "))
}

fn place_to_target(key: PortKey, target: Target) -> String {
    let (protocol, port) = (key.protocol.lower(), key.port);
    format!("{protocol} . {port} : {} . {}", target.address, target.port)
}

/// Pods that have a port.
pub fn addresses(entries: &Entries) -> BTreeSet<Ipv4Addr> {
    entries.values().map(|target| target.address).collect()
}

/// Elements to delete and to add.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    pub delete: Entries,
    pub add: Entries,
    /// Pods that have a port no longer.
    pub gone: BTreeSet<Ipv4Addr>,
    /// Pods that had none.
    pub new: BTreeSet<Ipv4Addr>,
}

impl Change {
    /// Returns the change from one table to the other.
    pub fn between(before: &Entries, after: &Entries) -> Self {
        let missing = |these: &Entries, those: &Entries| -> Entries {
            let missing = these
                .iter()
                .filter(|(key, target)| those.get(key) != Some(target));
            missing.map(|(key, target)| (*key, *target)).collect()
        };
        let (had, have) = (addresses(before), addresses(after));
        Self {
            delete: missing(before, after),
            add: missing(after, before),
            gone: &had - &have,
            new: &have - &had,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.delete.is_empty() && self.add.is_empty()
    }

    /// The change as one transaction; deletions first, so that a changed target is a deletion and an addition.
    pub fn batch(&self) -> ElementBatch {
        let mut batch = ElementBatch::new(TABLE);
        for key in self.delete.keys() {
            batch.element(
                ElementVerb::Delete,
                map_of(*key),
                &key_bytes(*key),
                ElementData::Nothing,
            );
        }
        for address in &self.gone {
            batch.element(
                ElementVerb::Delete,
                HAIRPIN,
                &twice(*address),
                ElementData::Nothing,
            );
        }
        for (key, target) in &self.add {
            let data = ElementData::Value(&target_bytes(*target));
            batch.element(ElementVerb::Add, map_of(*key), &key_bytes(*key), data);
        }
        for address in &self.new {
            batch.element(ElementVerb::Add, HAIRPIN, &twice(*address), ElementData::Nothing);
        }
        batch
    }
}

fn map_of(key: PortKey) -> &'static str {
    if key.address.is_some() { AT_ADDRESS } else { AT_ANY }
}

/// Fields padded to four bytes each, addresses and ports in network order.
fn key_bytes(key: PortKey) -> Vec<u8> {
    let mut bytes: Vec<u8> = key
        .address
        .map_or(Vec::new(), |address| address.octets().to_vec());
    let [high, low] = key.port.to_be_bytes();
    bytes.extend([key.protocol.number(), 0, 0, 0, high, low, 0, 0]);
    bytes
}

fn target_bytes(target: Target) -> [u8; 8] {
    let ([a, b, c, d], [high, low]) = (target.address.octets(), target.port.to_be_bytes());
    [a, b, c, d, high, low, 0, 0]
}

fn twice(address: Ipv4Addr) -> [u8; 8] {
    let [a, b, c, d] = address.octets();
    [a, b, c, d, a, b, c, d]
}

/// Reads an element of [`AT_ADDRESS`] or [`AT_ANY`].
pub fn read(element: &PresentElement) -> Option<(PortKey, Target)> {
    let (address, place) = match *element.key.as_slice() {
        [a, b, c, d, ref place @ ..] if place.len() == 8 => (Some(Ipv4Addr::new(a, b, c, d)), place),
        ref place => (None, place),
    };
    let [number, _, _, _, high, low, _, _] = *place else {
        return None;
    };
    let [a, b, c, d, first, second, _, _] = *element.data.as_slice() else {
        return None;
    };
    let key = PortKey {
        protocol: Protocol::of_number(number)?,
        port: u16::from_be_bytes([high, low]),
        address,
    };
    let target = Target {
        address: Ipv4Addr::new(a, b, c, d),
        port: u16::from_be_bytes([first, second]),
    };
    Some((key, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(protocol: Protocol, address: Option<[u8; 4]>, port: u16, pod: u8) -> (PortKey, Target) {
        let key = PortKey {
            protocol,
            port,
            address: address.map(Ipv4Addr::from),
        };
        let target = Target {
            address: Ipv4Addr::new(10, 244, 0, pod),
            port: 8080,
        };
        (key, target)
    }

    #[test]
    fn host_port_elements_are_read_as_they_were_written() {
        let all = [
            entry(Protocol::Tcp, None, 80, 2),
            entry(Protocol::Udp, Some([127, 0, 0, 1]), 53, 3),
            entry(Protocol::Sctp, Some([192, 0, 2, 1]), 65535, 4),
        ];
        for (key, target) in all {
            let element = PresentElement {
                key: key_bytes(key),
                data: target_bytes(target).to_vec(),
                expires_in: None,
            };
            assert_eq!(read(&element), Some((key, target)));
        }
        let odd = |key: &[u8], data: &[u8]| PresentElement {
            key: key.to_vec(),
            data: data.to_vec(),
            expires_in: None,
        };
        assert_eq!(read(&odd(&[6, 0, 0, 0, 0, 80, 0, 0], &[10, 244])), None);
        assert_eq!(
            read(&odd(&[1, 0, 0, 0, 0, 80, 0, 0], &[0; 8])),
            None,
            "no such protocol"
        );
        machinery_fuzz::fuzz([&key_bytes(all[0].0), &key_bytes(all[1].0)], |input| {
            let element = odd(input, &[0; 8]);
            let _ = machinery_fuzz::in_proportion(input, 1, || read(&element));
        });
    }

    #[test]
    fn host_port_change_names_what_differs() {
        let before: Entries = [
            entry(Protocol::Tcp, None, 80, 2),
            entry(Protocol::Tcp, None, 81, 2),
            entry(Protocol::Tcp, None, 82, 3),
        ]
        .into();
        let after: Entries = [
            entry(Protocol::Tcp, None, 80, 2),
            entry(Protocol::Tcp, None, 82, 4),
        ]
        .into();
        let change = Change::between(&before, &after);
        let (old, new) = (
            entry(Protocol::Tcp, None, 82, 3),
            entry(Protocol::Tcp, None, 82, 4),
        );
        assert_eq!(change.delete, [entry(Protocol::Tcp, None, 81, 2), old].into());
        assert_eq!(change.add, [new].into());
        assert_eq!(change.gone, [old.1.address].into());
        assert_eq!(change.new, [new.1.address].into());
        assert!(Change::between(&after, &after).is_empty());
    }

    #[test]
    fn host_port_table_has_its_elements() {
        let entries: Entries = [
            entry(Protocol::Tcp, None, 80, 2),
            entry(Protocol::Udp, Some([127, 0, 0, 1]), 53, 2),
        ]
        .into();
        let text = whole(&["10.96.0.0/16".parse().unwrap()], &entries);
        for line in [
            "  ip daddr { 10.96.0.0/16 } return",
            "add element ip knarr-host-ports at_any { tcp . 80 : 10.244.0.2 . 8080 }",
            "add element ip knarr-host-ports at_address { 127.0.0.1 . udp . 53 : 10.244.0.2 . 8080 }",
            "add element ip knarr-host-ports hairpin { 10.244.0.2 . 10.244.0.2 }",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!whole(&[], &Entries::new()).contains("add element"));
    }
}
