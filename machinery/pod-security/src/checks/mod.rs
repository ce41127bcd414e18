//! The checks. A new one is a row of [`CHECKS`] and a function in the file of its subject.

mod host;
mod privileges;
mod profiles;
mod sysctls;
mod volumes;

use crate::evaluation::{Check, Form, Violation};
use crate::level::Level::{Baseline, Restricted};
use crate::pod::Pod;

/// The answer of a check: nothing where a pod passes.
pub(crate) type Verdict = Option<Violation>;

const fn since(since: u64, forbids: fn(&Pod<'_>) -> Verdict) -> Form {
    Form {
        since,
        forbids,
        replaces: None,
    }
}

impl Form {
    const fn replaces(self, id: &'static str) -> Self {
        Self {
            replaces: Some(id),
            ..self
        }
    }
}

/// All, in the order of their messages: by level, then by id.
pub(crate) static CHECKS: [Check; 19] = [
    Check {
        id: "appArmorProfile",
        level: Baseline,
        forms: &[since(0, profiles::app_armor_profile)],
    },
    Check {
        id: "capabilities_baseline",
        level: Baseline,
        forms: &[since(0, privileges::capabilities_baseline)],
    },
    Check {
        id: "hostNamespaces",
        level: Baseline,
        forms: &[since(0, host::host_namespaces)],
    },
    Check {
        id: "hostPathVolumes",
        level: Baseline,
        forms: &[since(0, volumes::host_path_volumes)],
    },
    Check {
        id: "hostPorts",
        level: Baseline,
        forms: &[since(0, host::host_ports)],
    },
    Check {
        id: "hostProbesAndHostLifecycle",
        level: Baseline,
        forms: &[since(34, host::host_probes_and_lifecycle)],
    },
    Check {
        id: "privileged",
        level: Baseline,
        forms: &[since(0, privileges::privileged)],
    },
    Check {
        id: "procMount",
        level: Baseline,
        forms: &[
            since(0, profiles::proc_mount),
            since(35, |pod| outside_user_namespaces(pod, profiles::proc_mount)),
        ],
    },
    Check {
        id: "seLinuxOptions",
        level: Baseline,
        forms: &[
            since(0, profiles::se_linux_options_1_0),
            since(31, profiles::se_linux_options_1_31),
        ],
    },
    Check {
        id: "seccompProfile_baseline",
        level: Baseline,
        forms: &[
            since(0, profiles::seccomp_annotations),
            since(19, profiles::seccomp_profile_baseline),
        ],
    },
    Check {
        id: "sysctls",
        level: Baseline,
        forms: &[
            since(0, sysctls::sysctls::<0>),
            since(27, sysctls::sysctls::<27>),
            since(29, sysctls::sysctls::<29>),
            since(32, sysctls::sysctls::<32>),
            since(37, sysctls::sysctls::<37>),
        ],
    },
    Check {
        id: "windowsHostProcess",
        level: Baseline,
        forms: &[since(0, host::windows_host_process)],
    },
    Check {
        id: "allowPrivilegeEscalation",
        level: Restricted,
        forms: &[
            since(8, privileges::allow_privilege_escalation),
            since(25, |pod| on_linux(pod, privileges::allow_privilege_escalation)),
        ],
    },
    Check {
        id: "capabilities_restricted",
        level: Restricted,
        forms: &[
            since(22, privileges::capabilities_restricted).replaces("capabilities_baseline"),
            since(25, |pod| on_linux(pod, privileges::capabilities_restricted))
                .replaces("capabilities_baseline"),
        ],
    },
    Check {
        id: "procMount_restricted",
        level: Restricted,
        forms: &[since(35, profiles::proc_mount).replaces("procMount")],
    },
    Check {
        id: "restrictedVolumes",
        level: Restricted,
        forms: &[since(0, volumes::restricted_volumes).replaces("hostPathVolumes")],
    },
    Check {
        id: "runAsNonRoot",
        level: Restricted,
        forms: &[
            since(0, privileges::run_as_non_root),
            since(35, |pod| {
                outside_user_namespaces(pod, privileges::run_as_non_root)
            }),
        ],
    },
    Check {
        id: "runAsUser",
        level: Restricted,
        forms: &[
            since(23, privileges::run_as_user),
            since(35, |pod| outside_user_namespaces(pod, privileges::run_as_user)),
        ],
    },
    Check {
        id: "seccompProfile_restricted",
        level: Restricted,
        forms: &[
            since(19, profiles::seccomp_profile_restricted).replaces("seccompProfile_baseline"),
            since(25, |pod| on_linux(pod, profiles::seccomp_profile_restricted))
                .replaces("seccompProfile_baseline"),
        ],
    },
];

/// Validation refuses the fields of such checks in pods of Windows, which need not set them therefore.
fn on_linux(pod: &Pod<'_>, forbids: fn(&Pod<'_>) -> Verdict) -> Verdict {
    match pod.is_of_windows() {
        true => None,
        false => forbids(pod),
    }
}

/// Rights that a pod has in its user namespace alone are harmless outside of it.
fn outside_user_namespaces(pod: &Pod<'_>, forbids: fn(&Pod<'_>) -> Verdict) -> Verdict {
    match pod.has_user_namespace() {
        true => None,
        false => forbids(pod),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_sorted_as_their_messages_are() {
        assert!(CHECKS.is_sorted_by_key(|check| (check.level, check.id)));
        for check in &CHECKS {
            assert!(check.forms.is_sorted_by_key(|form| form.since), "{}", check.id);
            let replaced = check.forms.iter().filter_map(|form| form.replaces);
            let find = |id| CHECKS.iter().find(|own| own.id == id);
            let levels = replaced.map(|id| find(id).map(|own| own.level));
            assert!(
                levels.eq(check
                    .forms
                    .iter()
                    .filter_map(|form| form.replaces.map(|_| Some(Baseline))))
            );
        }
    }
}
