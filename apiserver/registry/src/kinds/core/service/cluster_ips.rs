//! The addresses of a service within its cluster, and their families: what they may be, and what of them stays.

use crate::shared::validation::{Errors, Path, immutable, is_pair, legacy_ip, one_of, present};
use machinery_schema::Ref;
use std::collections::HashSet;
use std::net::IpAddr;

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const SET_ONCE: &str = "may not change once set";

fn listed<'a>(spec: Ref<'a>, name: &str) -> Vec<&'a str> {
    spec.list(name)
        .map(|own| own.as_str().unwrap_or_default())
        .collect()
}

/// The service has no address, and says so.
pub(super) fn is_headless(spec: Ref<'_>) -> bool {
    listed(spec, "clusterIPs") == ["None"]
}

/// Validates addresses and families of a service that is no `ExternalName`.
pub(super) fn validate(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Option<Ref<'_>>) {
    if spec.str("type") == "ExternalName" {
        return;
    }
    let (at, ips) = (path.child("clusterIPs"), listed(spec, "clusterIPs"));
    first_is_single(errors, &at, spec, ips.first().copied());
    families(errors, &path.child("ipFamilies"), spec);
    one_of(errors, path, spec, "ipFamilyPolicy", &POLICIES, None);
    let known = old.map_or(Vec::new(), |old| listed(old, "clusterIPs"));
    let known = known.into_iter().collect();
    if addresses(errors, &at, spec, &known) && !is_headless(spec) {
        if ips.len() == 2 && !is_pair(&ips) {
            let detail = "may specify no more than one IP for each IP family";
            errors.invalid(&at, present(spec, "clusterIPs"), detail);
        }
        matching_families(errors, &at, spec);
    }
}

/// The one address of old clients is the first of the list.
fn first_is_single(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, first: Option<&str>) {
    let detail = match (first, spec.str("clusterIP")) {
        (None, "") => return,
        (None, _) => return errors.required(path, ""),
        (Some(_), "") => "must be empty when `clusterIP` is not specified",
        (Some(first), single) if first == single => return,
        (Some(_), _) => "first value must match `clusterIP`",
    };
    errors.invalid(path, present(spec, "clusterIPs"), detail);
}

fn families(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let families = listed(spec, "ipFamilies");
    let mut seen = HashSet::new();
    for (index, family) in families.iter().enumerate() {
        if !FAMILIES.contains(family) {
            errors.not_supported(&path.index(index), *family, &FAMILIES);
        }
        if !seen.insert(family) {
            errors.duplicate(&path.index(index), *family);
        }
    }
}

/// Each address for itself; says whether all are fine.
fn addresses(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, known: &HashSet<&str>) -> bool {
    let ips = listed(spec, "clusterIPs");
    let mut fine = true;
    for (index, ip) in ips.iter().enumerate() {
        if index == 0 && *ip == "None" {
            if ips.len() > 1 {
                fine = false;
                let detail = "'None' must be the first and only value";
                errors.invalid(path, present(spec, "clusterIPs"), detail);
            }
            continue;
        }
        fine &= known.contains(ip) || legacy_ip(errors, &path.index(index), ip);
    }
    if ips.len() > 2 {
        errors.invalid(path, present(spec, "clusterIPs"), "may only hold up to 2 values");
    }
    fine
}

fn matching_families(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let pairs = listed(spec, "clusterIPs")
        .into_iter()
        .zip(listed(spec, "ipFamilies"));
    for (index, (ip, family)) in pairs.enumerate() {
        let is_v6 = ip.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
        if (family == "IPv4" && is_v6) || (family == "IPv6" && !is_v6) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&path.index(index), ip, detail);
        }
    }
}

/// Refuses changes of the first address and family; a second one may be added or removed.
pub(super) fn changed(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Ref<'_>) {
    if [spec, old].iter().any(|spec| spec.str("type") == "ExternalName") {
        return;
    }
    let headless = (is_headless(spec), is_headless(old));
    if headless != (true, true) {
        let released = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        let unset = "primary clusterIP can not be unset";
        one_stays(
            errors,
            path,
            spec,
            old,
            &["clusterIPs", "clusterIPs", unset, released],
        );
    }
    if headless == (false, false) {
        let released = "must be set to 'SingleStack' when releasing the secondary ipFamily";
        let unset = "primary ipFamily can not be unset";
        one_stays(
            errors,
            path,
            spec,
            old,
            &["ipFamilies", "clusterIPs", unset, released],
        );
    }
}

/// `words`: the list, the list that upstream shows when its length changed, and its sentences for a release.
fn one_stays(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Ref<'_>, words: &[&str; 4]) {
    let [list, shown_list, unset, released] = *words;
    let (at, new, was) = (path.child(list), listed(spec, list), listed(old, list));
    if new.len() == was.len() {
        for (index, (new, was)) in new.iter().zip(&was).enumerate() {
            if new != was {
                let index = if list == "clusterIPs" { index } else { 0 };
                errors.invalid(&at.index(index), present(spec, list), SET_ONCE);
            }
        }
        return;
    }
    if new.len() < was.len() && new.is_empty() {
        errors.invalid(&at.index(0), present(spec, list), unset);
    }
    if let (Some(new), Some(was)) = (new.first(), was.first())
        && new != was
    {
        errors.invalid(&at.index(0), present(spec, shown_list), SET_ONCE);
    }
    if new.len() < was.len() && new.len() == 1 && spec.str("ipFamilyPolicy") != "SingleStack" {
        let policy = present(spec, "ipFamilyPolicy");
        errors.invalid(&path.child("ipFamilyPolicy"), policy, released);
    }
}

/// The class of a load balancer, which stays as long as the service is one.
pub(super) fn load_balancer_class(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Ref<'_>) {
    if [spec, old].iter().all(|spec| spec.str("type") == "LoadBalancer") {
        let (new, was) = (
            present(spec, "loadBalancerClass"),
            present(old, "loadBalancerClass"),
        );
        immutable(errors, &path.child("loadBalancerClass"), new, was, SET_ONCE);
    }
}
