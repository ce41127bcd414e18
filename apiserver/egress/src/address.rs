//! Addresses that connections may go to.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// The addresses that a destination may have, whatever name it goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedAddresses {
    /// Any but those that lead back to this server.
    Any,
    /// Of those only what Go calls global unicast: private networks, but neither this machine nor this link. Upstream's
    /// rule for the proxied addresses of nodes and pods.
    Global,
    /// All, this server's included: the operator's files name the destination, and nothing of ours goes with a request
    /// but what they say.
    Configured,
}

/// Ways back to this server: a request of it to itself would come from one of its own identities.
#[derive(Debug, Clone, Default)]
pub struct OwnAddresses {
    /// The port that the server listens on, on whichever address of this machine.
    pub port: Option<u16>,
    /// Addresses of services, of which the server's is one. Neither nodes nor pods have one.
    pub services: Option<IpNet>,
}

impl AllowedAddresses {
    /// Reports whether a connection to the address is allowed.
    pub(crate) fn permits(self, address: SocketAddr, own: &OwnAddresses) -> bool {
        let ip = address.ip().to_canonical();
        if self == Self::Configured {
            return true;
        }
        !own.leads_back(ip, address.port()) && (self == Self::Any || is_global_unicast(ip))
    }
}

impl OwnAddresses {
    fn leads_back(&self, ip: IpAddr, port: u16) -> bool {
        let is_service = self.services.is_some_and(|range| range.contains(&ip));
        is_service || (self.port == Some(port) && is_of_this_machine(ip))
    }
}

/// An address that a socket can be bound to is one of this machine's.
fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_unspecified() || ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Go's `IsGlobalUnicast`.
fn is_global_unicast(ip: IpAddr) -> bool {
    let of_this_link = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4 == Ipv4Addr::BROADCAST,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(of_this_link || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reach: AllowedAddresses, own: &OwnAddresses, address: &str, expected: bool) {
        let ip: IpAddr = address.parse().expect("an address");
        let permitted = reach.permits(SocketAddr::new(ip, 6443), own);
        assert_eq!(permitted, expected, "{reach:?} {own:?} {address}");
    }

    #[test]
    fn reach_leaves_out_this_machine_and_this_link() {
        let own = OwnAddresses::default();
        for address in ["10.0.0.1", "192.168.1.1", "8.8.8.8", "fd00::1", "2001:db8::1"] {
            check(AllowedAddresses::Global, &own, address, true);
        }
        for address in [
            "0.0.0.0",
            "127.0.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ] {
            check(AllowedAddresses::Global, &own, address, false);
            check(AllowedAddresses::Any, &own, address, true);
        }
    }

    #[test]
    fn reach_leaves_out_the_server_itself() {
        let own = OwnAddresses {
            port: Some(6443),
            services: Some("10.96.0.0/16".parse().expect("a range")),
        };
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "::1",
            "::ffff:127.0.0.1",
            "10.96.0.1",
        ] {
            check(AllowedAddresses::Any, &own, address, false);
            check(AllowedAddresses::Configured, &own, address, true);
        }
        let other_port = OwnAddresses {
            port: Some(6444),
            ..own
        };
        check(AllowedAddresses::Any, &other_port, "127.0.0.1", true);
        // A documentation network is on no interface here.
        check(AllowedAddresses::Global, &other_port, "192.0.2.77", true);
    }
}
