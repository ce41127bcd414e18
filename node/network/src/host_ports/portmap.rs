//! Rules of CNI's `portmap` in the machine's nat table, which agents up to 23 November 2026 had it make. Pure.

use std::collections::BTreeSet;

/// The chains that all containers' host ports hang on; the plugin makes them and never removes them.
const SHARED: [&str; 3] = ["CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK"];
/// Text that marks the rules of this network.
const OURS: &str = r#"dnat name: \"knarr\""#;

/// Input of `iptables-restore --noflush` that removes them, from the output of `iptables-save -t nat`; empty where nothing is ours.
pub fn removal(saved: &str) -> String {
    let rules: Vec<&str> = saved
        .lines()
        .filter_map(|line| line.strip_prefix("-A "))
        .collect();
    let (ours, others): (Vec<&str>, Vec<&str>) = rules.into_iter().partition(|rule| rule.contains(OURS));
    if ours.is_empty() {
        return String::new();
    }
    let mut gone: Vec<&str> = ours.clone();
    let mut chains: BTreeSet<&str> = ours.iter().filter_map(|rule| target(rule)).collect();
    let is_still_used = others
        .iter()
        .any(|rule| target(rule).is_some_and(|chain| chain.starts_with("CNI-DN-")));
    if !is_still_used {
        gone.extend(
            others
                .iter()
                .filter(|rule| target(rule).is_some_and(|chain| SHARED.contains(&chain))),
        );
        chains.extend(
            SHARED
                .iter()
                .filter(|chain| saved.contains(&format!(":{chain} "))),
        );
    }
    let delete = gone.iter().map(|rule| format!("-D {rule}\n"));
    // A chain can go once it is empty and nothing leads to it.
    let flush = chains.iter().map(|chain| format!("-F {chain}\n"));
    let remove = chains.iter().map(|chain| format!("-X {chain}\n"));
    let lines: String = delete.chain(flush).chain(remove).collect();
    format!("*nat\n{lines}COMMIT\n")
}

/// The chain a rule jumps to.
fn target(rule: &str) -> Option<&str> {
    let (_, rest) = rule.split_once(" -j ")?;
    rest.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS_SAVED: &str = r#"*nat
:PREROUTING ACCEPT [0:0]
:CNI-DN-1 - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A PREROUTING -j SOMEBODY
-A CNI-DN-1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.2:80
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"knarr\" id: \"ab\"" -m multiport --dports 80 -j CNI-DN-1
"#;
    const OTHERS: &str = r#"-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"podman\" id: \"cd\"" -m multiport --dports 81 -j CNI-DN-2
"#;

    #[test]
    fn ours_go_with_the_shared_chains() {
        let expected = r#"*nat
-D CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"knarr\" id: \"ab\"" -m multiport --dports 80 -j CNI-DN-1
-D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-F CNI-DN-1
-F CNI-HOSTPORT-DNAT
-F CNI-HOSTPORT-MASQ
-F CNI-HOSTPORT-SETMARK
-X CNI-DN-1
-X CNI-HOSTPORT-DNAT
-X CNI-HOSTPORT-MASQ
-X CNI-HOSTPORT-SETMARK
COMMIT
"#;
        assert_eq!(removal(OURS_SAVED), expected);
    }

    #[test]
    fn host_ports_shared_chains_stay_while_used() {
        let removal = removal(&format!("{OURS_SAVED}{OTHERS}"));
        assert!(removal.contains("-X CNI-DN-1\nCOMMIT"), "{removal}");
        assert!(!removal.contains("PREROUTING"), "{removal}");
    }

    #[test]
    fn others_are_not_touched() {
        assert_eq!(removal(OTHERS), "");
    }
}
