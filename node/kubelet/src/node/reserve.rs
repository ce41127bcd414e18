//! Parts of the machine that are kept from pods: for the system, for Kubernetes' own programs, and the room that the
//! hard eviction thresholds keep free. Words and sums are upstream's. Pure.

use std::collections::BTreeMap;

use machinery_meta::Quantity;
use node_sys::cgroup::CgroupResources;
use node_sys::machine::Machine;

use crate::containers::huge_pages;
use crate::containers::resources::shares;
use crate::eviction::thresholds::{Threshold, Thresholds, pairs};

/// Amounts by resource: of processors in thousandths, else in units.
pub type Amounts = BTreeMap<String, i64>;

const RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
/// Of the machine's processes one in so many is kept from pods where no reserve names `pid`; upstream keeps none, and one
/// tenant's pods can leave the node without a process to be had.
const TASKS_PER_KEPT: i64 = 10;
/// A pod has no more processes where `--pod-max-pids` is not given; upstream has no such bound of its own.
const POD_PIDS_MAX: i64 = 4096;
/// Nor a larger part than one in so many of what all pods together may have.
const PODS_PER_POD_PIDS: i64 = 4;

/// Resources reserved from pods, and the eviction thresholds.
#[derive(Debug, Clone, PartialEq)]
pub struct Reserve {
    /// For Kubernetes' own programs.
    pub kube: Amounts,
    /// For all other programs.
    pub system: Amounts,
    /// Kept free.
    pub eviction_hard: Thresholds,
    /// Levels that are enforced, upstream's `enforceNodeAllocatable`.
    pub enforce: Vec<String>,
    /// The group of Kubernetes' own programs.
    pub kube_cgroup: String,
    /// The group of all other programs.
    pub system_cgroup: String,
}

impl Default for Reserve {
    fn default() -> Self {
        let thresholds = [
            (
                "memory.available",
                Threshold::Amount(Quantity::from_bytes(100 << 20)),
            ),
            ("nodefs.available", Threshold::Share(0.1)),
            ("nodefs.inodesFree", Threshold::Share(0.05)),
            ("imagefs.available", Threshold::Share(0.15)),
            ("imagefs.inodesFree", Threshold::Share(0.05)),
        ];
        Self {
            kube: Amounts::new(),
            system: Amounts::new(),
            eviction_hard: thresholds.map(|(name, value)| (name.to_owned(), value)).into(),
            enforce: vec!["pods".to_owned()],
            kube_cgroup: String::new(),
            system_cgroup: String::new(),
        }
    }
}

/// Reads `cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000`.
pub fn parse_amounts(text: &str) -> Result<Amounts, String> {
    let mut amounts = Amounts::new();
    for (name, value) in pairs(text, '=')? {
        if !RESOURCES.contains(&name) {
            return Err(format!("cannot reserve {name:?} resource"));
        }
        let quantity: Quantity = value
            .parse()
            .map_err(|error| format!("failed to parse quantity {value:?} for {name:?} resource: {error}"))?;
        if quantity.is_negative() {
            return Err(format!(
                "resource quantity for {name:?} cannot be negative: {value}"
            ));
        }
        let amount = if name == "cpu" {
            quantity.millis()
        } else {
            quantity.units()
        };
        amounts.insert(name.to_owned(), amount);
    }
    Ok(amounts)
}

impl Reserve {
    /// Everything wrong with it, in upstream's words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.contradictions();
        for (at, level) in self.enforce.iter().enumerate() {
            if self.enforce[..at].contains(level) {
                problems.push(format!(
                    "invalid configuration: duplicated enforcements {level:?} in enforceNodeAllocatable \
                     (--enforce-node-allocatable)"
                ));
                continue;
            }
            problems.extend(self.problem_of(level));
        }
        problems
    }

    fn contradictions(&self) -> Vec<String> {
        let has = |level: &str| self.enforce.iter().any(|own| own == level);
        let both = ["system-reserved", "kube-reserved"].into_iter().filter_map(|level| {
            let compressible = format!("{level}-compressible");
            (has(level) && has(&compressible)).then(|| {
                format!(
                    "invalid configuration: both {level:?} and {compressible:?} cannot be specified together in \
                     enforceNodeAllocatable (--enforce-node-allocatable)"
                )
            })
        });
        both.collect()
    }

    fn problem_of(&self, level: &str) -> Option<String> {
        let without_group = |name: &str, level: &str| {
            format!(
                "invalid configuration: {name}ReservedCgroup (--{name}-reserved-cgroup) must be specified when \
                 \"{level}\" or \"{level}-compressible\" included in enforceNodeAllocatable (--enforce-node-allocatable)"
            )
        };
        match level {
            "pods" => None,
            "system-reserved" | "system-reserved-compressible" => {
                let missing = self.system_cgroup.is_empty();
                missing.then(|| without_group("system", "system-reserved"))
            }
            "kube-reserved" | "kube-reserved-compressible" => {
                let missing = self.kube_cgroup.is_empty();
                missing.then(|| without_group("kube", "kube-reserved"))
            }
            "none" => (self.enforce.len() > 1).then(|| {
                "invalid configuration: enforceNodeAllocatable (--enforce-node-allocatable) may not contain \
                 additional enforcements when \"none\" is specified"
                    .to_owned()
            }),
            other => Some(format!(
                "invalid configuration: option {other:?} specified for enforceNodeAllocatable \
                 (--enforce-node-allocatable). Valid options are \"pods\", \"system-reserved\", \
                 \"system-reserved-compressible\", \"kube-reserved\", \"kube-reserved-compressible\" or \"none\""
            )),
        }
    }

    /// Reserved amount of a resource with this capacity.
    pub fn kept(&self, resource: &str, capacity: i64) -> i64 {
        let signal = match resource {
            "memory" => "memory.available",
            "ephemeral-storage" => "nodefs.available",
            _ => "",
        };
        let free = self
            .eviction_hard
            .get(signal)
            .map_or(0, |threshold| threshold.of(capacity));
        self.reserved(resource).saturating_add(free)
    }

    /// Amount that is reserved by name, without the room of the thresholds.
    pub(crate) fn reserved(&self, resource: &str) -> i64 {
        let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or(0);
        of(&self.kube).saturating_add(of(&self.system))
    }

    /// Allocatable amount of a resource with this capacity.
    pub fn allocatable(&self, resource: &str, capacity: i64) -> i64 {
        capacity.saturating_sub(self.kept(resource, capacity)).max(0)
    }

    /// Upstream's sentence where more is kept than there is.
    pub fn check(&self, capacity: &Amounts) -> Result<(), String> {
        let too_much = capacity.iter().filter_map(|(resource, whole)| {
            let kept = self.kept(resource, *whole);
            let text = |amount: i64| amount_text(resource, amount);
            (kept > *whole).then(|| {
                format!(
                    "Resource {resource:?} has a reservation of {} but capacity of {}. Expected capacity >= \
                     reservation.",
                    text(kept),
                    text(*whole)
                )
            })
        });
        let problems: Vec<String> = too_much.collect();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "invalid Node Allocatable configuration. {}",
                problems.join(" ")
            )),
        }
    }

    /// Processes that all pods together may have; `None` where the machine's own bound is not known.
    fn pods_pids(&self, machine: &Machine) -> Option<i64> {
        let whole = i64::try_from(machine.tasks_max).unwrap_or(i64::MAX);
        let named = [&self.kube, &self.system]
            .iter()
            .any(|own| own.contains_key("pid"));
        let kept = match (self.enforces_pods(), named) {
            (false, _) => 0,
            (true, true) => self.reserved("pid"),
            (true, false) => whole / TASKS_PER_KEPT,
        };
        (whole > 0).then(|| whole.saturating_sub(kept).max(0))
    }

    /// Processes that one pod may have where `--pod-max-pids` is not given.
    pub fn pod_pids(&self, machine: &Machine) -> i64 {
        let all = self.pods_pids(machine).unwrap_or(i64::MAX);
        POD_PIDS_MAX.min(all / PODS_PER_POD_PIDS)
    }

    /// Reports whether the group of all pods is limited.
    pub fn enforces_pods(&self) -> bool {
        self.enforce.iter().any(|level| level == "pods")
    }

    /// Limits of the group of all pods.
    pub fn pods_limits(&self, machine: &Machine) -> CgroupResources {
        let enforced = self.enforces_pods();
        let less = |resource: &str, whole: u64| {
            let whole = i64::try_from(whole).unwrap_or(i64::MAX);
            let kept = if enforced { self.reserved(resource) } else { 0 };
            whole.saturating_sub(kept).max(0)
        };
        let cpu = less("cpu", machine.cpus.saturating_mul(1000));
        CgroupResources {
            cpu_shares: Some(shares(cpu).unsigned_abs()),
            memory_limit_bytes: Some(less("memory", machine.memory_bytes)).filter(|bytes| *bytes > 0),
            pids_limit: self.pods_pids(machine),
            ..CgroupResources::default()
        }
    }

    /// Groups of other programs that get limits: path and limits, with the words for them.
    pub fn others_limits(&self) -> Vec<(&'static str, &str, CgroupResources)> {
        let levels = self.enforce.iter().filter_map(|level| match level.as_str() {
            "system-reserved" => Some((
                "System Reserved",
                &self.system_cgroup,
                limits(&self.system, false),
            )),
            "kube-reserved" => Some(("Kube Reserved", &self.kube_cgroup, limits(&self.kube, false))),
            "system-reserved-compressible" => Some((
                "System Reserved Compressible",
                &self.system_cgroup,
                limits(&self.system, true),
            )),
            "kube-reserved-compressible" => Some((
                "Kube Reserved Compressible",
                &self.kube_cgroup,
                limits(&self.kube, true),
            )),
            _ => None,
        });
        levels
            .map(|(words, group, limits)| (words, group.as_str(), limits))
            .collect()
    }
}

fn limits(amounts: &Amounts, compressible_only: bool) -> CgroupResources {
    let of = |resource: &str| amounts.get(resource).copied();
    let compressible = CgroupResources {
        cpu_shares: of("cpu").map(|millis| shares(millis).unsigned_abs()),
        ..CgroupResources::default()
    };
    if compressible_only {
        return compressible;
    }
    CgroupResources {
        memory_limit_bytes: of("memory"),
        pids_limit: of("pid"),
        ..compressible
    }
}

/// An amount as a Node says it.
pub fn amount_text(resource: &str, amount: i64) -> String {
    match resource {
        "cpu" => Quantity::from_millis(amount).to_string(),
        "memory" | "ephemeral-storage" if amount % 1024 == 0 => format!("{}Ki", amount / 1024),
        pages if huge_pages::is_one(pages) => Quantity::from_bytes(amount).to_string(),
        _ => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::parse_thresholds;

    const MI: i64 = 1 << 20;
    const GI: i64 = 1 << 30;

    fn reserve(kube: &str, system: &str, eviction: &str) -> Reserve {
        Reserve {
            kube: parse_amounts(kube).unwrap(),
            system: parse_amounts(system).unwrap(),
            eviction_hard: parse_thresholds(eviction).unwrap(),
            ..Reserve::default()
        }
    }

    /// Upstream's `TestNodeAllocatableReservationForScheduling`.
    #[test]
    fn reservations_for_scheduling_are_upstreams() {
        for (kube, system, eviction, cpu, memory) in [
            ("cpu=100m,memory=100Mi", "cpu=50m,memory=50Mi", "", 150, 150 * MI),
            (
                "cpu=100m,memory=100Mi",
                "cpu=50m,memory=50Mi",
                "memory.available<100Mi",
                150,
                250 * MI,
            ),
            (
                "cpu=100m,memory=100Mi",
                "cpu=50m,memory=50Mi",
                "memory.available<5%",
                150,
                694_157_320,
            ),
            ("", "", "", 0, 0),
            ("memory=100Mi", "cpu=50m,memory=50Mi", "", 50, 150 * MI),
            ("cpu=50m,memory=100Mi", "memory=50Mi", "", 50, 150 * MI),
        ] {
            let reserve = reserve(kube, system, eviction);
            let found = (reserve.kept("cpu", 10_000), reserve.kept("memory", 10 * GI));
            assert_eq!(found, (cpu, memory), "{kube} {system} {eviction}");
        }
        for (kube, eviction, storage) in [
            ("ephemeral-storage=100Mi", "", 100 * MI),
            ("ephemeral-storage=100Mi", "nodefs.available<100Mi", 200 * MI),
            ("ephemeral-storage=150Mi", "nodefs.available<5%", 694_157_320),
            ("", "", 0),
        ] {
            let reserve = reserve(kube, "", eviction);
            assert_eq!(
                reserve.kept("ephemeral-storage", 10 * GI),
                storage,
                "{kube} {eviction}"
            );
        }
    }

    /// Upstream's `TestNodeAllocatableForEnforcement`: what is kept free is not taken from the pods' group.
    #[test]
    fn limits_of_all_pods_are_upstreams() {
        let machine = Machine {
            cpus: 10,
            memory_bytes: 10 << 30,
            tasks_max: 32_768,
            ..Machine::default()
        };
        let mut reserve = reserve(
            "cpu=100m,memory=100Mi,pid=768",
            "cpu=50m,memory=50Mi",
            "memory.available<5%",
        );
        let limits = reserve.pods_limits(&machine);
        assert_eq!(limits.cpu_shares, Some(9850 * 1024 / 1000));
        assert_eq!(limits.memory_limit_bytes, Some(10_090 * MI));
        assert_eq!(limits.pids_limit, Some(32_000));
        reserve.enforce = vec!["none".to_owned()];
        assert_eq!(reserve.pods_limits(&machine).memory_limit_bytes, Some(10 * GI));
        assert_eq!(
            Reserve::default().pods_limits(&machine).memory_limit_bytes,
            Some(10 * GI)
        );
    }

    #[test]
    fn processes_of_pods_leave_some_to_the_machine() {
        let limits = |tasks_max, flag: &str| {
            let machine = Machine {
                tasks_max,
                ..Machine::default()
            };
            let mut own = reserve(flag, "", "");
            let enforced = (own.pods_limits(&machine).pids_limit, own.pod_pids(&machine));
            own.enforce = vec!["none".to_owned()];
            (enforced, own.pods_limits(&machine).pids_limit)
        };
        assert_eq!(limits(32_768, ""), ((Some(29_492), 4096), Some(32_768)));
        assert_eq!(
            limits(4096, ""),
            ((Some(3687), 921), Some(4096)),
            "a small machine"
        );
        // A reserve is the operator's word for it, as upstream.
        assert_eq!(limits(32_768, "pid=1000"), ((Some(31_768), 4096), Some(32_768)));
        assert_eq!(limits(32_768, "pid=0").0.0, Some(32_768));
        assert_eq!(limits(0, ""), ((None, 4096), None), "not known");
    }

    #[test]
    fn reservations_beyond_the_machine_are_refused_in_upstreams_words() {
        let capacity = Amounts::from([("cpu".to_owned(), 2000), ("memory".to_owned(), GI)]);
        let reserve = reserve("memory=2Gi", "", "");
        let refused = "invalid Node Allocatable configuration. Resource \"memory\" has a reservation of 2097152Ki but \
                       capacity of 1048576Ki. Expected capacity >= reservation.";
        assert_eq!(reserve.check(&capacity).unwrap_err(), refused);
        assert_eq!(reserve.allocatable("memory", GI), 0);
        assert_eq!(Reserve::default().check(&capacity), Ok(()));
        assert_eq!(amount_text("cpu", 9850), "9850m");
        assert_eq!(amount_text("cpu", 9000), "9");
        assert_eq!(amount_text("ephemeral-storage", 18_242_267_924), "18242267924");
    }

    #[test]
    fn reserve_flags_are_read_in_upstreams_words() {
        let refused = |text: &str| parse_amounts(text).unwrap_err();
        assert_eq!(parse_amounts("").unwrap(), Amounts::new());
        assert_eq!(parse_amounts(" cpu = 1.5 ,").unwrap()["cpu"], 1500);
        assert_eq!(refused("cpu"), "malformed pair, expect string=string");
        assert_eq!(refused("gpu=1"), "cannot reserve \"gpu\" resource");
        assert_eq!(
            refused("memory=-1Gi"),
            "resource quantity for \"memory\" cannot be negative: -1Gi"
        );
        assert!(
            refused("memory=much").starts_with("failed to parse quantity \"much\" for \"memory\" resource: ")
        );
    }

    /// Cases of upstream's `TestValidateKubeletConfiguration`.
    #[test]
    fn levels_of_enforcement_are_checked_as_upstreams() {
        let problems = |levels: &[&str], group: &str| {
            let reserve = Reserve {
                enforce: levels.iter().map(|level| (*level).to_owned()).collect(),
                system_cgroup: group.to_owned(),
                kube_cgroup: group.to_owned(),
                ..Reserve::default()
            };
            reserve.problems()
        };
        let all = ["pods", "system-reserved", "kube-reserved"];
        assert_eq!(problems(&all, "/other"), Vec::<String>::new());
        assert_eq!(problems(&["none"], ""), Vec::<String>::new());
        for (levels, expected) in [
            (&["pods", "pods"][..], "duplicated enforcements \"pods\""),
            (
                &["system-reserved"],
                "systemReservedCgroup (--system-reserved-cgroup) must be specified when \"system-reserved\" or \"system-reserved-compressible\" included",
            ),
            (
                &["kube-reserved-compressible"],
                "kubeReservedCgroup (--kube-reserved-cgroup) must be specified",
            ),
            (
                &["none", "pods"],
                "may not contain additional enforcements when \"none\" is specified",
            ),
            (
                &["everything"],
                "option \"everything\" specified for enforceNodeAllocatable",
            ),
        ] {
            let found = problems(levels, "");
            assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
        }
        let both = problems(&["system-reserved", "system-reserved-compressible"], "/other");
        assert!(both[0].contains(
            "both \"system-reserved\" and \"system-reserved-compressible\" cannot be specified together"
        ));
    }
}
