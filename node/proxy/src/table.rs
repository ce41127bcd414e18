//! The nftables table as text: its fixed part, and its elements.
//!
//! The chains and sets are always the same, however many services there are; services and endpoints are elements.
//! A service with four endpoints is in the set `to_c4`, which leads to the chain `c4`, which picks one of four slots
//! at random; `ch4` picks by the client's address, `p4` and `ph4` do the same for node ports. Only the first packet
//! of a connection passes here.
//!
//! There is a set per number of slots, rather than one map to verdicts, because the kernel walks every element of
//! every verdict map when one of them changes: with thirty thousand services a change would cost ten milliseconds.

use crate::elements::{Delta, Key, Value};
use crate::model::Protocol;
use crate::rules::slot_counts;
use ipnet::Ipv4Net;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The table; nothing outside it is touched.
pub const TABLE: &str = "knarr-proxy";
/// The bit that says "give this packet the node's address", as upstream's proxy uses it.
const MASQUERADE_MARK: &str = "0x4000";

const SERVICE_KEY: &str = "type ipv4_addr . inet_proto . inet_service;";
const PORT_KEY: &str = "type inet_proto . inet_service;";

const MAPS: &str = "\
 map endpoints { typeof ip daddr . ip protocol . th dport . numgen random mod 2 : ip daddr . th dport; }
 map nodeport_endpoints { typeof ip protocol . th dport . numgen random mod 2 : ip daddr . th dport; }
 set hairpin { type ipv4_addr . ipv4_addr; }
 set cluster_ips { type ipv4_addr; }
 set frontends { type ipv4_addr; }
";

/// The four ways to spread: prefix of its chains, map of its endpoints, fields before the port, what picks the slot.
const SPREADS: [(&str, &str, &str, &str); 4] = [
    ("c", "endpoints", "ip daddr . ", "numgen random"),
    ("ch", "endpoints", "ip daddr . ", "jhash ip saddr"),
    ("p", "nodeport_endpoints", "", "numgen random"),
    ("ph", "nodeport_endpoints", "", "jhash ip saddr"),
];

/// Everything but the elements, replacing whatever table of this name is there.
pub fn base(cluster_cidr: Option<Ipv4Net>) -> String {
    let mut out = format!("table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{MAPS}");
    for name in ["masquerades", "refused", "dropped"] {
        let _ = writeln!(
            out,
            " set {name} {{ {SERVICE_KEY} }}\n set nodeport_{name} {{ {PORT_KEY} }}"
        );
    }
    let _ = writeln!(out, " set nodeports {{ {PORT_KEY} }}");
    out.push_str(" chain reject_it {\n  reject\n }\n chain drop_it {\n  drop\n }\n");
    let (mut services, mut node_ports) = (String::new(), String::new());
    for (prefix, map, before_port, pick) in SPREADS {
        let (sets, type_) = if before_port.is_empty() {
            (&mut node_ports, PORT_KEY)
        } else {
            (&mut services, SERVICE_KEY)
        };
        for slots in slot_counts() {
            let name = format!("{prefix}{slots}");
            let _ = writeln!(out, " set to_{name} {{ {type_} }}");
            let _ = writeln!(
                sets,
                "  {before_port}meta l4proto . th dport @to_{name} goto {name}"
            );
            spread_chain(&mut out, &name, map, before_port, &format!("{pick} mod {slots}"));
        }
    }
    let outside = cluster_cidr.map_or(String::new(), |cidr| format!("ip saddr != {cidr} "));
    let _ = write!(
        out,
        "\
 chain service {{
{services} }}
 chain nodeport {{
  meta l4proto . th dport @nodeport_masquerades meta mark set meta mark | {MASQUERADE_MARK}
{node_ports} }}
 chain services {{
  {outside}ip daddr . meta l4proto . th dport @masquerades meta mark set meta mark | {MASQUERADE_MARK}
  ip daddr @frontends jump service
  meta l4proto . th dport @nodeports fib daddr type local ip daddr != 127.0.0.0/8 jump nodeport
 }}
 chain check {{
  ip daddr . meta l4proto . th dport @refused goto reject_it
  ip daddr . meta l4proto . th dport @dropped goto drop_it
  ip daddr @cluster_ips goto reject_it
  meta l4proto . th dport @nodeport_refused fib daddr type local ip daddr != 127.0.0.0/8 goto reject_it
  meta l4proto . th dport @nodeport_dropped fib daddr type local ip daddr != 127.0.0.0/8 goto drop_it
 }}
 chain masquerade_it {{
  meta mark set meta mark ^ {MASQUERADE_MARK}
  masquerade fully-random
 }}
 chain prerouting {{
  type nat hook prerouting priority dstnat; policy accept;
  jump services
 }}
 chain nat_output {{
  type nat hook output priority -100; policy accept;
  jump services
 }}
 chain postrouting {{
  type nat hook postrouting priority srcnat; policy accept;
  meta mark & {MASQUERADE_MARK} == {MASQUERADE_MARK} jump masquerade_it
  ct status dnat ip saddr . ip daddr @hairpin masquerade fully-random
 }}
 chain input {{
  type filter hook input priority -5; policy accept;
  ct state new jump check
 }}
 chain forward {{
  type filter hook forward priority -5; policy accept;
  ct state new jump check
 }}
 chain output {{
  type filter hook output priority -5; policy accept;
  ct state new jump check
 }}
}}
"
    );
    out
}

fn spread_chain(out: &mut String, name: &str, map: &str, key: &str, slot: &str) {
    let _ = writeln!(out, " chain {name} {{");
    for protocol in Protocol::ALL {
        let protocol = protocol.lower();
        let _ = writeln!(
            out,
            "  meta l4proto {protocol} dnat ip to {key}meta l4proto . th dport . {slot} map @{map}"
        );
    }
    out.push_str(" }\n");
}

/// Elements in one command hold at most this many, so that nft's parser stays quick.
const CHUNK: usize = 4096;

/// The commands of a change; deletions first, so that a changed value is a deletion and an addition.
pub fn change(delta: &Delta) -> String {
    let mut out = String::new();
    commands(
        &mut out,
        "delete",
        delta.delete.iter().map(|(key, value)| (*key, *value)),
    );
    commands(
        &mut out,
        "add",
        delta.add.iter().map(|(key, value)| (*key, *value)),
    );
    out
}

/// Commands that add all these elements.
pub fn additions(elements: impl Iterator<Item = (Key, Value)>) -> String {
    let mut out = String::new();
    commands(&mut out, "add", elements);
    out
}

/// One command per map or set and chunk.
fn commands(out: &mut String, verb: &str, elements: impl Iterator<Item = (Key, Value)>) {
    let mut by_set: BTreeMap<Cow<'static, str>, Vec<(Key, Value)>> = BTreeMap::new();
    for (key, value) in elements {
        by_set
            .entry(collection(key, value))
            .or_default()
            .push((key, value));
    }
    for (set, elements) in by_set {
        for chunk in elements.chunks(CHUNK) {
            let _ = write!(out, "{verb} element ip {TABLE} {set} {{ ");
            for (index, (key, value)) in chunk.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                element(out, *key, *value, verb == "delete");
            }
            out.push_str(" }\n");
        }
    }
}

/// The map or set of an element.
pub(crate) fn collection(key: Key, value: Value) -> Cow<'static, str> {
    let dropped = value == Value::Drop;
    Cow::Borrowed(match key {
        Key::Service(..) | Key::NodePort(..) => return Cow::Owned(spread_set(key, value)),
        Key::Endpoint(..) => "endpoints",
        Key::NodePortEndpoint(..) => "nodeport_endpoints",
        Key::Masquerade(..) => "masquerades",
        Key::NodePortMasquerade(..) => "nodeport_masquerades",
        Key::Refused(..) if dropped => "dropped",
        Key::Refused(..) => "refused",
        Key::NodePortRefused(..) if dropped => "nodeport_dropped",
        Key::NodePortRefused(..) => "nodeport_refused",
        Key::Frontend(..) => "frontends",
        Key::NodePortFrontend(..) => "nodeports",
        Key::Hairpin(..) => "hairpin",
        Key::ClusterIp(..) => "cluster_ips",
    })
}

fn spread_set(key: Key, value: Value) -> String {
    let Value::Spread { slots, by_client } = value else {
        return "to_nothing".to_owned();
    };
    let kind = if matches!(key, Key::NodePort(..)) {
        "p"
    } else {
        "c"
    };
    let hash = if by_client { "h" } else { "" };
    format!("to_{kind}{hash}{slots}")
}

fn element(out: &mut String, key: Key, value: Value, key_only: bool) {
    let _ = match key {
        Key::Service(address, protocol, port)
        | Key::Masquerade(address, protocol, port)
        | Key::Refused(address, protocol, port) => write!(out, "{address} . {} . {port}", protocol.lower()),
        Key::Endpoint(address, protocol, port, slot) => {
            write!(out, "{address} . {} . {port} . {slot}", protocol.lower())
        }
        Key::NodePort(protocol, port)
        | Key::NodePortFrontend(protocol, port)
        | Key::NodePortMasquerade(protocol, port)
        | Key::NodePortRefused(protocol, port) => write!(out, "{} . {port}", protocol.lower()),
        Key::NodePortEndpoint(protocol, port, slot) => write!(out, "{} . {port} . {slot}", protocol.lower()),
        Key::Hairpin(address) => write!(out, "{address} . {address}"),
        Key::ClusterIp(address) | Key::Frontend(address) => write!(out, "{address}"),
    };
    if let Value::Target(address, port) = value
        && !key_only
    {
        let _ = write!(out, " : {address} . {port}");
    }
}
