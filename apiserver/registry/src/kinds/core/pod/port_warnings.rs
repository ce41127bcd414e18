//! Ports of a pod that are the same, or get in each other's way.

use super::warnings::Warnings;
use crate::shared::validation::Path;
use machinery_schema::Ref;
use std::collections::HashMap;

/// A container of a pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContainerPlace {
    pub(super) list: &'static str,
    pub(super) index: usize,
}

/// A port of a pod. Few get in each other's way, so that only those are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortPlace {
    pub(super) container: ContainerPlace,
    pub(super) index: usize,
}

impl PortPlace {
    /// Its path, by that of the pod's spec.
    pub(super) fn shown(self, spec: &Path<'_>) -> String {
        let ContainerPlace { list, index } = self.container;
        let list = spec.child(list);
        let container = list.index(index);
        let ports = container.child("ports");
        ports.index(self.index).to_path().to_string()
    }
}

/// Ports seen so far, by number and protocol.
#[derive(Default)]
pub(super) struct Ports<'a>(HashMap<(i64, &'a str), SamePort<'a>>);

/// Ports with the same number and protocol, in order, and the place of each among them.
#[derive(Default)]
struct SamePort<'a> {
    all: Vec<(HostPort<'a>, PortPlace)>,
    by_host: HashMap<i64, Vec<usize>>,
    by_address: HashMap<HostPort<'a>, Vec<usize>>,
}

/// Host address and host port.
type HostPort<'a> = (&'a str, i64);

impl<'a> Ports<'a> {
    /// Warns of the ports of a container; `spec` leads to the pod's.
    pub(super) fn look_at(
        &mut self,
        warnings: &mut Warnings,
        spec: &Path<'_>,
        place: ContainerPlace,
        container: Ref<'a>,
    ) {
        let list = spec.child(place.list);
        let at = list.index(place.index);
        let ports = at.child("ports");
        for (index, port) in container.list("ports").enumerate() {
            if warnings.is_full() {
                return;
            }
            let number = |name: &str| port.get(name).and_then(Ref::as_i64).unwrap_or(0);
            let own = (port.str("hostIP"), number("hostPort"));
            let key = (number("containerPort"), port.str("protocol"));
            if !own.0.is_empty() && own.1 == 0 {
                let (name, (number, protocol)) = (port.str("name"), key);
                let shown = format!(
                    "{{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{}}}",
                    own.0
                );
                let message = format!("hostIP set without hostPort: {shown}");
                warnings.add(&ports.index(index), &message);
            }
            let others = self.0.entry(key).or_default();
            for (how, other) in others.in_the_way(own) {
                let message = format!("{how} port definition with {}", other.shown(spec));
                warnings.add(&ports.index(index), &message);
            }
            let place = PortPlace {
                container: place,
                index,
            };
            others.push(own, place);
        }
    }
}

impl<'a> SamePort<'a> {
    fn push(&mut self, own: HostPort<'a>, place: PortPlace) {
        let at = self.all.len();
        self.all.push((own, place));
        self.by_host.entry(own.1).or_default().push(at);
        self.by_address.entry(own).or_default().push(at);
    }

    /// Ports in conflict with this one: the type of conflict, and the place of the other port.
    fn in_the_way(&self, (ip, host): HostPort<'a>) -> impl Iterator<Item = (&'static str, PortPlace)> {
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
            (how, *place)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::core::pod::warnings::of;
    use crate::shared::validation::Path;
    use machinery_schema::Tree;

    #[track_caller]
    fn check(spec: &str, expected: &[&str]) {
        let pod = Tree::from_json(&format!(r#"{{"spec":{spec}}}"#)).unwrap();
        assert_eq!(of(&Path::of("template"), pod.root()), expected);
    }

    #[test]
    fn port_warnings_name_both_ports() {
        check(
            r#"{"initContainers":[{"name":"i","ports":[{"containerPort":1},{"containerPort":80,"protocol":"TCP"}]}],
                "containers":[{"name":"c"},{"name":"d","ports":[{"containerPort":80,"protocol":"UDP"},{"containerPort":80,"protocol":"TCP"}]}]}"#,
            &[
                "template.spec.containers[1].ports[1]: duplicate port definition with template.spec.initContainers[0].ports[1]",
            ],
        );
        check(
            r#"{"containers":[{"name":"c","ports":[{"containerPort":80,"hostPort":8080},{"containerPort":80,"hostPort":8080,"hostIP":"10.0.0.1"},{"containerPort":80}]}]}"#,
            &[
                "template.spec.containers[0].ports[1]: dangerously ambiguous port definition with template.spec.containers[0].ports[0]",
                "template.spec.containers[0].ports[2]: overlapping port definition with template.spec.containers[0].ports[0]",
                "template.spec.containers[0].ports[2]: overlapping port definition with template.spec.containers[0].ports[1]",
            ],
        );
    }

    #[test]
    fn port_name_warnings_name_both_ports() {
        let first = "template.spec.containers[0].ports[1]";
        let expected = format!(
            r#"template.spec.containers[1].ports[0]: duplicate port name "n" with {first}, services and probes that select ports by name will use {first}"#
        );
        check(
            r#"{"containers":[{"name":"c","ports":[{"containerPort":1},{"containerPort":2,"name":"n"}]},{"name":"d","ports":[{"containerPort":3,"name":"n"}]}]}"#,
            &[&expected],
        );
    }
}
