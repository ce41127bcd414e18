//! Bounds of containers, pods and claims.

use crate::AdmissionError;
use k8s_openapi::api::core::v1::{
    Container, LimitRangeItem, PersistentVolumeClaimSpec, PodSpec, ResourceRequirements,
};
use machinery_meta::Quantity;
use machinery_semantics::ResourceList;
use machinery_semantics::resources::{containers_limits, containers_requests};

/// A request compares at most so many amounts: upstream has no bound, and a pod's containers times the entries of a
/// namespace's ranges are hundreds of millions within what may be stored.
const MAX_COMPARISONS: usize = 1 << 20;
/// A refusal names at most so many violations; upstream names all.
const MAX_VIOLATIONS: usize = 100;
/// Amounts up to this are compared in thousandths (upstream's `MaxMilliValue`).
const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;

/// Comparisons of one request, counted.
#[derive(Default)]
pub(super) struct Bounds {
    comparisons: usize,
}

/// Violations of one range.
#[derive(Default)]
struct Violations(Vec<String>);

impl Violations {
    fn add(&mut self, violation: Option<String>) {
        let new = violation.filter(|text| self.0.len() < MAX_VIOLATIONS && !self.0.contains(text));
        self.0.extend(new);
    }

    /// The problems as upstream's `Aggregate` writes them: each text once, in brackets where there are several.
    fn refusal(self) -> Result<(), AdmissionError> {
        match self.0.as_slice() {
            [] => Ok(()),
            [one] => Err(AdmissionError::forbidden(one.clone())),
            several => Err(AdmissionError::forbidden(format!("[{}]", several.join(", ")))),
        }
    }
}

/// Requests and limits of whatever is bounded.
struct Amounts {
    requests: ResourceList,
    limits: ResourceList,
}

impl Amounts {
    fn of(resources: Option<&ResourceRequirements>) -> Self {
        let requests = resources.and_then(|own| own.requests.as_ref());
        let limits = resources.and_then(|own| own.limits.as_ref());
        Self {
            requests: ResourceList::from_api(requests),
            limits: ResourceList::from_api(limits),
        }
    }

    /// Amounts of the whole pod: of cpu and memory, what the pod itself requests counts.
    fn of_pod(pod: &PodSpec) -> Self {
        let own = Self::of(pod.resources.as_ref());
        let mut all = Self {
            requests: containers_requests(pod),
            limits: containers_limits(pod),
        };
        for (total, own) in [(&mut all.requests, &own.requests), (&mut all.limits, &own.limits)] {
            for name in ["cpu", "memory"] {
                total
                    .0
                    .extend(own.0.get(name).map(|amount| (name.to_owned(), *amount)));
            }
        }
        all
    }
}

/// One side of an item, by resource.
type Side =
    Option<std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>;

impl Bounds {
    pub(super) fn check_pod(
        &mut self,
        limits: &[LimitRangeItem],
        pod: &PodSpec,
    ) -> Result<(), AdmissionError> {
        let mut violations = Violations::default();
        for item in limits {
            match item.type_.as_str() {
                "Container" => {
                    let all = pod.containers.iter().chain(pod.init_containers.iter().flatten());
                    for container in all {
                        self.check_container(item, container, &mut violations)?;
                    }
                }
                "Pod" => self.check_amounts(item, &Amounts::of_pod(pod), &mut violations)?,
                _ => {}
            }
        }
        violations.refusal()
    }

    pub(super) fn check_claim(
        &mut self,
        limits: &[LimitRangeItem],
        claim: &PersistentVolumeClaimSpec,
    ) -> Result<(), AdmissionError> {
        let mut violations = Violations::default();
        let requests = claim.resources.as_ref().and_then(|own| own.requests.as_ref());
        let amounts = Amounts {
            requests: ResourceList::from_api(requests),
            limits: ResourceList::default(),
        };
        for item in limits.iter().filter(|item| item.type_ == "PersistentVolumeClaim") {
            self.each(&item.min, |one| violations.add(min(item, one, &amounts)))?;
            self.each(&item.max, |one| {
                violations.add(max_request(item, one, &amounts.requests))
            })?;
        }
        violations.refusal()
    }

    fn check_container(
        &mut self,
        item: &LimitRangeItem,
        container: &Container,
        violations: &mut Violations,
    ) -> Result<(), AdmissionError> {
        let amounts = Amounts::of(container.resources.as_ref());
        self.check_amounts(item, &amounts, violations)
    }

    fn check_amounts(
        &mut self,
        item: &LimitRangeItem,
        amounts: &Amounts,
        violations: &mut Violations,
    ) -> Result<(), AdmissionError> {
        self.each(&item.min, |one| violations.add(min(item, one, amounts)))?;
        self.each(&item.max, |one| violations.add(max(item, one, amounts)))?;
        self.each(&item.max_limit_request_ratio, |one| {
            violations.add(ratio(item, one, amounts));
        })
    }

    fn each(&mut self, side: &Side, mut look: impl FnMut(Enforced<'_>)) -> Result<(), AdmissionError> {
        for (resource, amount) in side.iter().flatten() {
            self.comparisons += 1;
            if self.comparisons > MAX_COMPARISONS {
                return Err(AdmissionError::forbidden(format!(
                    "more than {MAX_COMPARISONS} amounts would be compared with the limit ranges of the namespace"
                )));
            }
            let amount = amount.0.parse().unwrap_or_default();
            look(Enforced { resource, amount });
        }
        Ok(())
    }
}

/// One bound.
#[derive(Clone, Copy)]
struct Enforced<'a> {
    resource: &'a str,
    amount: Quantity,
}

/// Request, limit and bound in units that they share: thousandths, unless one is too large for them.
fn shared_units(request: Quantity, limit: Quantity, enforced: Quantity) -> [i64; 3] {
    let all = [request, limit, enforced];
    match all.iter().all(|amount| amount.units() <= MAX_MILLI_VALUE) {
        true => all.map(Quantity::millis),
        false => all.map(Quantity::units),
    }
}

fn min(item: &LimitRangeItem, one: Enforced<'_>, amounts: &Amounts) -> Option<String> {
    let (request, limit) = (
        amounts.requests.0.get(one.resource),
        amounts.limits.0.get(one.resource),
    );
    let begin = format!(
        "minimum {} usage per {} is {}",
        one.resource, item.type_, one.amount
    );
    let Some(request) = request else {
        return Some(format!("{begin}.  No request is specified"));
    };
    let [own, most, least] = shared_units(*request, limit.copied().unwrap_or_default(), one.amount);
    if own < least {
        return Some(format!("{begin}, but request is {request}"));
    }
    let limit = limit.filter(|_| most < least)?;
    Some(format!("{begin}, but limit is {limit}"))
}

fn max(item: &LimitRangeItem, one: Enforced<'_>, amounts: &Amounts) -> Option<String> {
    let (request, limit) = (
        amounts.requests.0.get(one.resource),
        amounts.limits.0.get(one.resource),
    );
    let begin = format!(
        "maximum {} usage per {} is {}",
        one.resource, item.type_, one.amount
    );
    let Some(limit) = limit else {
        return Some(format!("{begin}.  No limit is specified"));
    };
    let [own, limited, most] = shared_units(request.copied().unwrap_or_default(), *limit, one.amount);
    if limited > most {
        return Some(format!("{begin}, but limit is {limit}"));
    }
    let request = request.filter(|_| own > most)?;
    Some(format!("{begin}, but request is {request}"))
}

fn max_request(item: &LimitRangeItem, one: Enforced<'_>, requests: &ResourceList) -> Option<String> {
    let begin = format!(
        "maximum {} usage per {} is {}",
        one.resource, item.type_, one.amount
    );
    let Some(request) = requests.0.get(one.resource) else {
        return Some(format!("{begin}.  No request is specified"));
    };
    let [own, _, most] = shared_units(*request, Quantity::default(), one.amount);
    (own > most).then(|| format!("{begin}, but request is {request}"))
}

fn ratio(item: &LimitRangeItem, one: Enforced<'_>, amounts: &Amounts) -> Option<String> {
    let begin = format!(
        "{} max limit to request ratio per {} is {}",
        one.resource, item.type_, one.amount
    );
    let [request, limit, _] = shared_units(
        amounts.requests.get(one.resource),
        amounts.limits.get(one.resource),
        one.amount,
    );
    if request == 0 {
        return Some(format!("{begin}, but no request is specified or request is 0"));
    }
    if limit == 0 {
        return Some(format!("{begin}, but no limit is specified or limit is 0"));
    }
    let shown = limit as f64 / request as f64;
    let (own, most) = match one.amount.units() <= MAX_MILLI_VALUE {
        true => (shown * 1000.0, one.amount.millis() as f64),
        false => (shown, one.amount.units() as f64),
    };
    (own > most).then(|| format!("{begin}, but provided ratio is {shown:.6}"))
}
