//! Claims of pods on ports of the node. Pure.

use super::ports::{Entries, HostPort, PortKey, Target, overlapping};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A port belongs to another pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken(pub PortKey);

/// Ports of all pods of the node.
#[derive(Debug, Default)]
pub struct Claims {
    ports: BTreeMap<PortKey, Claim>,
    held: BTreeMap<Arc<str>, Held>,
    revision: u64,
    adopted: bool,
}

#[derive(Debug, Clone)]
struct Claim {
    /// The pod's uid; `None` of what the agent before this one left.
    owner: Option<Arc<str>>,
    target: Target,
}

/// A pod that has what it requested.
#[derive(Debug)]
struct Held {
    address: Ipv4Addr,
    revision: u64,
}

impl Claims {
    /// The number of the newest change; the first has 1.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Reports whether the claims include those of an earlier agent.
    pub fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// Ports of all pods, with where they lead.
    pub fn entries(&self) -> Entries {
        let all = self.ports.iter();
        all.map(|(key, claim)| (*key, claim.target)).collect()
    }

    /// Adopts the entries that an earlier agent left. Claims that pods have made meanwhile stay.
    pub fn adopt(&mut self, left: Entries) {
        self.adopted = true;
        for (key, target) in left {
            // A pod that holds its ports has all that it wants; adopted entries that lead to its address are
            // from before.
            let is_over = self.held.values().any(|held| held.address == target.address);
            let is_claimed = overlapping(&self.ports, &key).any(|(_, claim)| claim.owner.is_some());
            if !is_over && !is_claimed {
                let claim = Claim { owner: None, target };
                self.ports.insert(key, claim);
            }
        }
        self.revision += 1;
    }

    /// Gives a pod at this address these ports and no others, or none of them where another pod has one. Returns the
    /// revision that has them. Entries left for any of them, or that lead to the pod's address, go: an address has one pod.
    pub fn hold(&mut self, uid: &str, address: Ipv4Addr, ports: &[HostPort]) -> Result<u64, Taken> {
        // The pod's ports are immutable, so the same address means the same claim. This makes the call cheap
        // enough for every sync of a pod.
        if let Some(held) = self.held.get(uid).filter(|held| held.address == address) {
            return Ok(held.revision);
        }
        let wanted = wanted(address, ports);
        // All or none, and before anything changes: a refused pod leaves the claims as they were.
        if let Some(taken) = wanted.keys().find(|key| self.is_taken(key, uid, address)) {
            return Err(Taken(*taken));
        }
        let before = self.ports.len();
        self.ports.retain(|key, claim| {
            let is_over = claim.owner.is_none() && overlapping(&wanted, key).next().is_some();
            claim.owner.as_deref() != Some(uid) && claim.target.address != address && !is_over
        });
        if self.ports.len() != before || !wanted.is_empty() {
            self.revision += 1;
        }
        let (owner, revision) = (Arc::<str>::from(uid), self.revision);
        for (key, target) in wanted {
            let owner = Some(Arc::clone(&owner));
            self.ports.insert(key, Claim { owner, target });
        }
        self.held.insert(owner, Held { address, revision });
        Ok(revision)
    }

    /// Releases a pod's ports, and adopted entries that lead to these addresses of it. Returns the revision without them.
    pub fn release(&mut self, uid: &str, addresses: &[Ipv4Addr]) -> u64 {
        self.held.remove(uid);
        self.remove(|claim| match &claim.owner {
            Some(owner) => **owner == *uid,
            None => addresses.contains(&claim.target.address),
        })
    }

    /// Removes adopted entries that no pod has claimed; called once every pod has been synced.
    pub fn settle(&mut self) -> u64 {
        self.remove(|claim| claim.owner.is_none())
    }

    /// Returns 0 where nothing goes: there is nothing to wait for.
    fn remove(&mut self, is_gone: impl Fn(&Claim) -> bool) -> u64 {
        let before = self.ports.len();
        self.ports.retain(|_, claim| !is_gone(claim));
        if self.ports.len() == before {
            return 0;
        }
        self.revision += 1;
        self.revision
    }

    fn is_taken(&self, key: &PortKey, uid: &str, address: Ipv4Addr) -> bool {
        overlapping(&self.ports, key).any(|(_, claim)| {
            let other = claim.owner.as_deref().is_some_and(|owner| owner != uid);
            // A claim that leads to this very address belongs to a pod that is gone: an address has one pod at
            // a time.
            other && claim.target.address != address
        })
    }
}

/// Of two containers that request one port the first has it.
fn wanted(address: Ipv4Addr, ports: &[HostPort]) -> Entries {
    let mut wanted = Entries::new();
    for one in ports {
        let port = one.container_port;
        wanted.entry(one.key).or_insert(Target { address, port });
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::super::ports::Protocol;
    use super::*;

    const ONE: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 2);
    const TWO: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 3);

    fn key(text: &str) -> PortKey {
        let (place, protocol) = text.split_once('/').unwrap();
        let (address, port) = place.split_once(':').unwrap_or(("", place));
        let protocol = Protocol::ALL.into_iter().find(|one| one.lower() == protocol);
        PortKey {
            protocol: protocol.unwrap(),
            port: port.parse().unwrap(),
            address: address.parse().ok(),
        }
    }

    fn ports(text: &str) -> Vec<HostPort> {
        let one = |text| HostPort {
            key: key(text),
            container_port: 8080,
        };
        text.split_whitespace().map(one).collect()
    }

    fn entries(text: &str, address: Ipv4Addr) -> Entries {
        let target = Target { address, port: 8080 };
        text.split_whitespace().map(|text| (key(text), target)).collect()
    }

    #[track_caller]
    fn check(first: &str, second: &str, taken: Option<&str>) {
        let mut claims = Claims::default();
        claims.hold("a", ONE, &ports(first)).unwrap();
        let refused = claims.hold("b", TWO, &ports(second)).err();
        assert_eq!(refused, taken.map(|text| Taken(key(text))));
        let mut expected = entries(first, ONE);
        if taken.is_none() {
            expected.extend(entries(second, TWO));
        }
        assert_eq!(claims.entries(), expected);
        // Whatever came of it, both leave nothing.
        claims.release("a", &[ONE]);
        claims.release("b", &[TWO]);
        assert_eq!(claims.entries(), Entries::new());
    }

    #[test]
    fn host_port_of_a_pod_is_not_taken_over() {
        check("80/tcp", "80/udp 81/tcp", None);
        check("80/tcp", "80/tcp", Some("80/tcp"));
        check("80/tcp", "81/tcp 192.0.2.1:80/tcp", Some("192.0.2.1:80/tcp"));
        check("192.0.2.1:80/tcp", "80/tcp", Some("80/tcp"));
        check("127.0.0.1:80/tcp", "192.0.2.1:80/tcp 192.0.2.1:80/udp", None);
        check("192.0.2.1:80/tcp", "192.0.2.1:80/tcp", Some("192.0.2.1:80/tcp"));
        check("80/tcp 192.0.2.1:80/tcp", "", None);
    }

    #[test]
    fn host_ports_held_again_change_nothing() {
        let mut claims = Claims::default();
        let revision = claims.hold("a", ONE, &ports("80/tcp")).unwrap();
        assert_eq!(claims.hold("a", ONE, &ports("80/tcp")), Ok(revision));
        assert_eq!(claims.revision(), revision);
        // In its next sandbox the pod has another address.
        assert!(claims.hold("a", TWO, &ports("80/tcp")).unwrap() > revision);
        assert_eq!(claims.entries(), entries("80/tcp", TWO));
        // The address belongs to the pod that came to it last, whatever was not released.
        claims.hold("b", TWO, &ports("80/tcp")).unwrap();
        claims.release("a", &[]);
        assert_eq!(claims.entries(), entries("80/tcp", TWO));
    }

    #[test]
    fn host_ports_of_an_earlier_agent_stay_until_all_pods_were_looked_at() {
        let left = || {
            let mut left = entries("80/tcp 81/tcp", ONE);
            left.extend(entries("82/tcp", TWO));
            left
        };
        let mut claims = Claims::default();
        claims.adopt(left());
        assert_eq!(claims.entries(), left());
        // Whose they are is known by the address; the pod no longer requests one of them.
        claims.hold("a", ONE, &ports("80/tcp")).unwrap();
        let mut expected = entries("80/tcp", ONE);
        expected.extend(entries("82/tcp", TWO));
        assert_eq!(claims.entries(), expected);
        assert!(claims.settle() > 0);
        assert_eq!(claims.entries(), entries("80/tcp", ONE));
        assert_eq!(claims.settle(), 0, "nothing to wait for");
    }

    #[test]
    fn host_ports_of_an_earlier_agent_yield_to_pods() {
        let mut claims = Claims::default();
        claims.hold("a", ONE, &ports("80/tcp")).unwrap();
        // A pod without host ports at the address of one that had some.
        claims.hold("b", TWO, &[]).unwrap();
        let mut left = entries("192.0.2.1:80/tcp", Ipv4Addr::new(10, 244, 0, 9));
        left.extend(entries("82/tcp", TWO));
        left.extend(entries("83/tcp 84/tcp", Ipv4Addr::new(10, 244, 0, 9)));
        claims.adopt(left);
        let expected = |nine: &str| {
            let mut all = entries("80/tcp", ONE);
            all.extend(entries(nine, Ipv4Addr::new(10, 244, 0, 9)));
            all
        };
        assert_eq!(claims.entries(), expected("83/tcp 84/tcp"));
        claims
            .hold("c", Ipv4Addr::new(10, 244, 0, 4), &ports("83/tcp"))
            .unwrap();
        claims.release("c", &[]);
        assert_eq!(claims.entries(), expected("84/tcp"));
        // A pod that ended while the agent was away never held what leads to it.
        claims.release("d", &[Ipv4Addr::new(10, 244, 0, 9)]);
        assert_eq!(claims.entries(), expected(""));
    }
}
