//! Ports of a pod that are the same, or get in each other's way.

use super::warnings::Warnings;
use crate::validation::Path;
use machinery_schema::Ref;
use std::collections::HashMap;

/// Ports seen so far, by number and protocol.
#[derive(Default)]
pub(super) struct Ports<'a>(HashMap<(i64, &'a str), SamePort<'a>>);

/// Those that have number and protocol in common, in order, and where each stands among them.
#[derive(Default)]
struct SamePort<'a> {
    all: Vec<(HostPort<'a>, String)>,
    by_host: HashMap<i64, Vec<usize>>,
    by_address: HashMap<HostPort<'a>, Vec<usize>>,
}

/// Host address and host port.
type HostPort<'a> = (&'a str, i64);

impl<'a> Ports<'a> {
    pub(super) fn look_at(&mut self, warnings: &mut Warnings, path: &Path<'_>, container: Ref<'a>) {
        for (index, port) in container.list("ports").enumerate() {
            if warnings.is_full() {
                return;
            }
            let number = |name: &str| port.get(name).and_then(Ref::as_i64).unwrap_or(0);
            let own = (port.str("hostIP"), number("hostPort"));
            let at = path.index(index);
            let key = (number("containerPort"), port.str("protocol"));
            let others = self.0.entry(key).or_default();
            for (how, other) in others.in_the_way(own) {
                warnings.add(&at, &format!("{how} port definition with {other}"));
            }
            others.push(own, at.render().to_string());
        }
    }
}

impl<'a> SamePort<'a> {
    fn push(&mut self, own: HostPort<'a>, place: String) {
        let at = self.all.len();
        self.all.push((own, place));
        self.by_host.entry(own.1).or_default().push(at);
        self.by_address.entry(own).or_default().push(at);
    }

    /// How each of those that a port gets in the way of does so, and where it stands.
    fn in_the_way(&self, (ip, host): HostPort<'a>) -> impl Iterator<Item = (&'static str, &str)> {
        let of_host = |host| self.by_host.get(&host).map_or(&[][..], Vec::as_slice);
        let of_address = |ip| self.by_address.get(&(ip, host)).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<usize> = match (host, ip) {
            (0, _) => (0..self.all.len()).collect(),
            (_, "") => [of_host(0), of_host(host)].concat(),
            _ => [of_host(0), of_address(ip), of_address("")].concat(),
        };
        found.sort_unstable();
        found.into_iter().map(move |at| {
            let (other, place) = &self.all[at];
            let how = if *other == (ip, host) {
                "duplicate"
            } else if host == 0 || other.1 == 0 {
                "overlapping"
            } else {
                "dangerously ambiguous"
            };
            (how, place.as_str())
        })
    }
}
