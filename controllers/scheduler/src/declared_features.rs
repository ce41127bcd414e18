//! Features that a node declares and that a pod needs of its node (component-helpers' `nodedeclaredfeatures`).
//!
//! Those of upstream that say nothing about where a pod may go (they matter to updates alone) are not among them.

use crate::object::{Pod, PodSpec};

/// Names, as nodes declare them; their place is that of the bit.
const NAMES: [&str; 3] = [
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
    "VolumeBindMountOptions",
];

/// A set of features.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct DeclaredFeatures(u8);

impl DeclaredFeatures {
    /// Features among these names; others are nothing to the scheduler.
    pub fn declared(names: &[Box<str>]) -> Self {
        let has = |name: &str| names.iter().any(|own| **own == *name);
        Self::of(NAMES.map(has))
    }

    /// Features that the pod needs of its node.
    pub fn needed(pod: &Pod) -> Self {
        let spec = &pod.spec;
        let mut containers = spec.containers.iter().chain(&spec.init_containers);
        let restarts_all = containers.any(|one| one.restarts_all);
        let has_users_on_host_network = spec.host_network && spec.host_users == Some(false);
        Self::of([restarts_all, has_users_on_host_network, binds_with_options(spec)])
    }

    fn of(has: [bool; NAMES.len()]) -> Self {
        let bits = has.into_iter().enumerate();
        Self(bits.fold(0, |all, (at, has)| all | u8::from(has) << at))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Reports whether all of these are among the others.
    pub fn are_among(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }
}

fn binds_with_options(spec: &PodSpec) -> bool {
    let containers = spec.containers.iter().chain(&spec.init_containers);
    let ephemeral = spec.ephemeral_containers.iter().map(|one| one.binds_with_options);
    containers
        .map(|one| one.binds_with_options)
        .chain(ephemeral)
        .any(|binds| binds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: &str, expected: &[&str]) {
        let pod: Pod = serde_json::from_str(&format!(r#"{{"spec":{spec}}}"#)).unwrap();
        let names: Vec<Box<str>> = expected.iter().map(|name| (*name).into()).collect();
        assert_eq!(
            DeclaredFeatures::needed(&pod),
            DeclaredFeatures::declared(&names),
            "{spec}"
        );
    }

    #[test]
    fn declared_features_follow_from_the_spec() {
        check("{}", &[]);
        check(r#"{"hostNetwork":true,"hostUsers":true}"#, &[]);
        check(r#"{"hostUsers":false}"#, &[]);
        check(r#"{"hostNetwork":true,"hostUsers":false}"#, &[NAMES[1]]);
        let rule = |action: &str| {
            format!(r#"[{{"restartPolicyRules":[{{"action":"Restart"}},{{"action":"{action}"}}]}}]"#)
        };
        check(&format!(r#"{{"containers":{}}}"#, rule("Restart")), &[]);
        check(
            &format!(r#"{{"initContainers":{}}}"#, rule("RestartAllContainers")),
            &[NAMES[0]],
        );
        let mount = |options: &str| {
            format!(r#"[{{"volumeMounts":[{{"name":"v"}},{{"bindMountOptions":{options}}}]}}]"#)
        };
        check(&format!(r#"{{"containers":{}}}"#, mount("[]")), &[]);
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let spec = format!(r#"{{"{list}":{}}}"#, mount(r#"["noexec"]"#));
            check(&spec, &[NAMES[2]]);
        }
    }
}
