//! The nftables table as text: its fixed part, and changes of elements.
//!
//! The chains are always the same, however many services there are; services and endpoints are elements of maps.
//! `c4` sends a connection to one of four slots at random, `ch4` by the client's address, `p4` and `ph4` do the
//! same for node ports. A connection to a service address is looked up once for its spread and once for its slot.

use crate::elements::{Delta, Key, Value};
use crate::model::Protocol;
use crate::rules::slot_counts;
use ipnet::Ipv4Net;
use std::fmt::Write as _;

/// The table; nothing outside it is touched.
pub const TABLE: &str = "knarr-proxy";
/// The bit that says "give this packet the node's address", as upstream's proxy uses it.
const MASQUERADE_MARK: &str = "0x4000";

const MAPS: &str = "\
 map services { type ipv4_addr . inet_proto . inet_service : verdict; }
 map endpoints { typeof ip daddr . ip protocol . th dport . numgen random mod 2 : ip daddr . th dport; }
 map nodeports { type inet_proto . inet_service : verdict; }
 map nodeport_endpoints { typeof ip protocol . th dport . numgen random mod 2 : ip daddr . th dport; }
 map refused { type ipv4_addr . inet_proto . inet_service : verdict; }
 map nodeport_refused { type inet_proto . inet_service : verdict; }
 set masquerades { type ipv4_addr . inet_proto . inet_service; }
 set nodeport_masquerades { type inet_proto . inet_service; }
 set hairpin { type ipv4_addr . ipv4_addr; }
 set cluster_ips { type ipv4_addr; }
";

/// Everything but the elements, replacing whatever table of this name is there.
pub fn base(cluster_cidr: Option<Ipv4Net>) -> String {
    let mut out = format!("table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{MAPS}");
    out.push_str(" chain reject_it {\n  reject\n }\n chain drop_it {\n  drop\n }\n");
    for slots in slot_counts() {
        for (kind, map, key) in [("c", "endpoints", "ip daddr . "), ("p", "nodeport_endpoints", "")] {
            spread_chain(
                &mut out,
                &format!("{kind}{slots}"),
                map,
                key,
                &format!("numgen random mod {slots}"),
            );
            spread_chain(
                &mut out,
                &format!("{kind}h{slots}"),
                map,
                key,
                &format!("jhash ip saddr mod {slots}"),
            );
        }
    }
    let outside = cluster_cidr.map_or(String::new(), |cidr| format!("ip saddr != {cidr} "));
    let _ = write!(
        out,
        "\
 chain nodeports {{
  meta l4proto . th dport @nodeport_masquerades meta mark set meta mark | {MASQUERADE_MARK}
  meta l4proto . th dport vmap @nodeports
 }}
 chain services {{
  {outside}ip daddr . meta l4proto . th dport @masquerades meta mark set meta mark | {MASQUERADE_MARK}
  ip daddr . meta l4proto . th dport vmap @services
  fib daddr type local ip daddr != 127.0.0.0/8 jump nodeports
 }}
 chain check {{
  ip daddr . meta l4proto . th dport vmap @refused
  ip daddr @cluster_ips goto reject_it
  fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @nodeport_refused
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

/// Elements come sorted by key, hence by map: one command per map and chunk.
fn commands(out: &mut String, verb: &str, elements: impl Iterator<Item = (Key, Value)>) {
    let mut open: Option<(&'static str, usize)> = None;
    for (key, value) in elements {
        let name = collection(key);
        match &mut open {
            Some((own, count)) if *own == name && *count < CHUNK => {
                *count += 1;
                out.push_str(", ");
            }
            _ => {
                if open.is_some() {
                    out.push_str(" }\n");
                }
                let _ = write!(out, "{verb} element ip {TABLE} {name} {{ ");
                open = Some((name, 1));
            }
        }
        element(out, key, value, verb == "delete");
    }
    if open.is_some() {
        out.push_str(" }\n");
    }
}

fn collection(key: Key) -> &'static str {
    match key {
        Key::Service(..) => "services",
        Key::Endpoint(..) => "endpoints",
        Key::NodePort(..) => "nodeports",
        Key::NodePortEndpoint(..) => "nodeport_endpoints",
        Key::Masquerade(..) => "masquerades",
        Key::NodePortMasquerade(..) => "nodeport_masquerades",
        Key::Refused(..) => "refused",
        Key::NodePortRefused(..) => "nodeport_refused",
        Key::Hairpin(..) => "hairpin",
        Key::ClusterIp(..) => "cluster_ips",
    }
}

fn element(out: &mut String, key: Key, value: Value, key_only: bool) {
    let node_port = matches!(key, Key::NodePort(..));
    let _ = match key {
        Key::Service(address, protocol, port)
        | Key::Masquerade(address, protocol, port)
        | Key::Refused(address, protocol, port) => write!(out, "{address} . {} . {port}", protocol.lower()),
        Key::Endpoint(address, protocol, port, slot) => {
            write!(out, "{address} . {} . {port} . {slot}", protocol.lower())
        }
        Key::NodePort(protocol, port)
        | Key::NodePortMasquerade(protocol, port)
        | Key::NodePortRefused(protocol, port) => write!(out, "{} . {port}", protocol.lower()),
        Key::NodePortEndpoint(protocol, port, slot) => write!(out, "{} . {port} . {slot}", protocol.lower()),
        Key::Hairpin(address) => write!(out, "{address} . {address}"),
        Key::ClusterIp(address) => write!(out, "{address}"),
    };
    if key_only {
        return;
    }
    let _ = match value {
        Value::Nothing => Ok(()),
        Value::Spread { slots, by_client } => {
            let kind = if node_port { "p" } else { "c" };
            let hash = if by_client { "h" } else { "" };
            write!(out, " : goto {kind}{hash}{slots}")
        }
        Value::Target(address, port) => write!(out, " : {address} . {port}"),
        Value::Reject => write!(out, " : goto reject_it"),
        Value::Drop => write!(out, " : goto drop_it"),
    };
}
