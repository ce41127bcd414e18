//! Addresses of the node that serve node ports and health check ports, as `--nodeport-addresses` lists them.

use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// One item of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodePortAddress {
    /// The node's own address.
    Primary,
    /// Loopback addresses; they serve health check ports, and no node ports (upstream's nftables mode, where the gate
    /// `KubeProxyNFTablesLocalhostNodePorts` is off by default).
    Localhost,
    All,
    Range(IpNet),
}

impl FromStr for NodePortAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "primary" => Self::Primary,
            "localhost" => Self::Localhost,
            "all" => Self::All,
            range => {
                Self::Range(without_leading_zeros(range).parse().map_err(
                    |_| "must be a valid CIDR or one of the keywords 'primary', 'localhost', 'all'",
                )?)
            }
        })
    }
}

/// The text as Go's older parser read it (`ParseCIDRSloppy`): leading zeros of decimal numbers mean nothing.
fn without_leading_zeros(range: &str) -> String {
    let (address, length) = range.split_once('/').unwrap_or((range, ""));
    let plain = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let address = match address.contains(':') {
        true => address.to_owned(),
        false => address.split('.').map(plain).collect::<Vec<_>>().join("."),
    };
    match length {
        "" => address,
        length => format!("{address}/{}", plain(length)),
    }
}

/// A keyword that stands twice in the list; ranges may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nodePortAddresses[{at}]: Duplicate value: {keyword:?}")]
pub struct DuplicateKeyword {
    /// The place of the second.
    pub at: usize,
    pub keyword: &'static str,
}

impl NodePortAddress {
    fn keyword(&self) -> Option<&'static str> {
        match self {
            Self::Primary => Some("primary"),
            Self::Localhost => Some("localhost"),
            Self::All => Some("all"),
            Self::Range(_) => None,
        }
    }
}

/// Refuses a list with a keyword that stands twice (upstream's `validateKubeProxyNodePortAddress`).
///
/// # Errors
/// [`DuplicateKeyword`], of the first that was there before.
pub fn check_keywords(list: &[NodePortAddress]) -> Result<(), DuplicateKeyword> {
    for (at, item) in list.iter().enumerate() {
        if let Some(keyword) = item.keyword().filter(|_| list[..at].contains(item)) {
            return Err(DuplicateKeyword { at, keyword });
        }
    }
    Ok(())
}

/// Ranges of addresses; without a range, all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePortAddresses(Vec<Ipv4Net>);

const LOOPBACK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);

impl NodePortAddresses {
    /// Reads the list. A list that names no addresses of this family allows all of them, as upstream's.
    pub fn new(list: &[NodePortAddress], node_ip: Option<Ipv4Addr>) -> Self {
        let range = |item: &NodePortAddress| match item {
            NodePortAddress::Primary => node_ip.filter(|ip| !ip.is_loopback()).map(Ipv4Net::from),
            NodePortAddress::Localhost => Some(LOOPBACK),
            NodePortAddress::All => Some(Ipv4Net::default()),
            NodePortAddress::Range(IpNet::V4(range)) => Some(range.trunc()),
            NodePortAddress::Range(IpNet::V6(_)) => None,
        };
        let ranges: Vec<Ipv4Net> = list.iter().filter_map(range).collect();
        if ranges.contains(&Ipv4Net::default()) {
            return Self::default();
        }
        // nft takes no range twice.
        Self(Ipv4Net::aggregate(&ranges))
    }

    /// The match of a packet to one of these addresses. Loopback addresses serve no node ports.
    pub(crate) fn nft_match(&self) -> String {
        let mut text = "fib daddr type local ip daddr != 127.0.0.0/8".to_owned();
        if !self.0.is_empty() {
            let ranges: Vec<String> = self.0.iter().map(Ipv4Net::to_string).collect();
            text += &format!(" ip daddr {{ {} }}", ranges.join(", "));
        }
        text
    }

    /// The addresses to listen at, of those that this machine has.
    pub(crate) fn to_listen(&self, of_machine: impl IntoIterator<Item = IpAddr>) -> Vec<Ipv4Addr> {
        if self.0.is_empty() {
            return vec![Ipv4Addr::UNSPECIFIED];
        }
        let of_machine = of_machine.into_iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        let mut found: Vec<Ipv4Addr> = of_machine
            .filter(|address| self.0.iter().any(|range| range.contains(address)))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: &str, ranges: &str, listened: &[[u8; 4]]) {
        let list: Vec<NodePortAddress> = list
            .split(',')
            .filter(|item| !item.is_empty())
            .map(|item| item.parse().unwrap())
            .collect();
        let own = Ipv4Addr::new(192, 0, 2, 1);
        let addresses = NodePortAddresses::new(&list, Some(own));
        let everywhere = "fib daddr type local ip daddr != 127.0.0.0/8";
        assert_eq!(addresses.nft_match().strip_prefix(everywhere).unwrap(), ranges);
        let of_machine = [
            [127, 0, 0, 1].into(),
            own.into(),
            IpAddr::from([10, 0, 0, 7]),
            Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
            own.into(),
        ];
        let listened: Vec<Ipv4Addr> = listened.iter().copied().map(Ipv4Addr::from).collect();
        assert_eq!(addresses.to_listen(of_machine), listened);
    }

    #[test]
    fn node_port_addresses_are_those_of_the_list() {
        let all = [[0, 0, 0, 0]];
        check("", "", &all);
        check("all,primary", "", &all);
        check("0.0.0.0/0", "", &all);
        check("::1/128", "", &all);
        check("primary", " ip daddr { 192.0.2.1/32 }", &[[192, 0, 2, 1]]);
        check("localhost", " ip daddr { 127.0.0.0/8 }", &[[127, 0, 0, 1]]);
        check(
            "192.0.2.9/24,primary,10.0.0.0/8",
            " ip daddr { 10.0.0.0/8, 192.0.2.0/24 }",
            &[[10, 0, 0, 7], [192, 0, 2, 1]],
        );
        check("0010.0.0.00/008", " ip daddr { 10.0.0.0/8 }", &[[10, 0, 0, 7]]);
        check(
            "10.0.0.0/8,10.0.0.0/8",
            " ip daddr { 10.0.0.0/8 }",
            &[[10, 0, 0, 7]],
        );
        check("203.0.113.0/24", " ip daddr { 203.0.113.0/24 }", &[]);
        "node".parse::<NodePortAddress>().unwrap_err();
    }

    /// Rows of a table of upstream's, by columns.
    fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        rows.map(|line| line.split('\t').collect())
    }

    fn items(list: &str) -> impl Iterator<Item = &str> {
        list.split(',').filter(|item| !item.is_empty())
    }

    /// Upstream's `TestGetNodeIPs`.
    #[test]
    fn node_port_addresses_are_upstreams_of_each_machine() {
        let mut count = 0;
        for row in rows(include_str!("../testdata/node_ips.tsv")) {
            let [name, list, of_machine, expected] = row[..] else {
                panic!("{row:?}");
            };
            let list: Vec<NodePortAddress> = items(list).map(|item| item.parse().unwrap()).collect();
            let addresses = NodePortAddresses::new(&list, None);
            let found = addresses.to_listen(items(of_machine).map(|own| own.parse().unwrap()));
            let expected: Vec<Ipv4Addr> = match expected {
                "*" => vec![Ipv4Addr::UNSPECIFIED],
                some => items(some).map(|own| own.parse().unwrap()).collect(),
            };
            assert_eq!(found, expected, "{name}");
            count += 1;
        }
        assert_eq!(count, 13);
    }

    /// Upstream's `TestValidateKubeProxyNodePortAddress`.
    #[test]
    fn node_port_addresses_are_refused_where_upstreams_are() {
        let mut count = 0;
        for row in rows(include_str!("../testdata/node_port_addresses.tsv")) {
            let [name, list, refused] = row[..] else {
                panic!("{row:?}");
            };
            let parsed = items(list).map(str::parse::<NodePortAddress>);
            let (good, bad): (Vec<_>, Vec<_>) = parsed.enumerate().partition(|(_, item)| item.is_ok());
            let mut found: Vec<String> = bad.iter().map(|(at, _)| at.to_string()).collect();
            let good: Vec<NodePortAddress> = good.into_iter().map(|(_, item)| item.unwrap()).collect();
            found.extend(
                check_keywords(&good)
                    .err()
                    .map(|twice| format!("{} twice", twice.at)),
            );
            assert_eq!(found.join(","), refused, "{name}");
            count += 1;
        }
        assert_eq!(count, 30);
    }
}
