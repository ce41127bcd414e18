//! Requests of claims with their classes, and the devices that they need.

use super::candidates::{Matches, Place};
use super::{Refusal, Surroundings, Wanted, capacity};
use crate::devices::objects::{DeviceClass, DeviceRequest, MAX_RESULTS, Request};
use crate::devices::pools::NearPool;
use machinery_meta::ObjectKey;

/// A request or an alternative, ready to be searched for.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    /// Its number among all.
    pub(super) number: usize,
    pub(super) claim_key: &'a ObjectKey,
    pub(super) name: &'a str,
    /// The request of which it is an alternative.
    pub(super) parent: Option<&'a str>,
    pub(super) request: &'a DeviceRequest,
    pub(super) class_name: &'a str,
    pub(super) class: &'a DeviceClass,
    /// Devices that it needs.
    pub(super) count: usize,
    /// They are these, where it needs all.
    pub(super) all: Option<Vec<Place<'a>>>,
}

impl Prepared<'_> {
    pub(super) fn is_admin(&self) -> bool {
        self.request.admin_access == Some(true)
    }

    /// Reports whether the names have its own, or that of its list.
    pub(super) fn is_among(&self, names: &[impl AsRef<str>]) -> bool {
        let (base, full) = (self.parent.unwrap_or(self.name), self.full_name());
        let mut names = names.iter().map(AsRef::as_ref);
        names.any(|name| name == base || name == full)
    }

    /// Its name in results.
    pub(super) fn full_name(&self) -> String {
        match self.parent {
            Some(parent) => format!("{parent}/{}", self.name),
            None => self.name.to_owned(),
        }
    }
}

/// Requests by claim, each with its alternatives: one, where it is no list of them.
pub(super) type Requests<'a> = Vec<Vec<Vec<Prepared<'a>>>>;

/// Everything that [`prepare`] looks at.
#[derive(Debug)]
pub(super) struct Preparing<'a, 'b> {
    pub(super) around: &'b Surroundings<'a>,
    pub(super) pools: &'b [NearPool<'a>],
    pub(super) places: &'b [Vec<Place<'a>>],
    pub(super) matches: &'b mut Matches,
    pub(super) made: usize,
}

impl<'a> Preparing<'a, '_> {
    pub(super) fn prepare(mut self, claims: &[Wanted<'a>]) -> Result<Requests<'a>, Refusal> {
        let mut all = Vec::with_capacity(claims.len());
        for claim in claims {
            let mut requests = Vec::new();
            let mut fewest = 0_usize;
            for request in &claim.spec.devices.requests {
                let alternatives = self.alternatives(claim, request)?;
                let least = alternatives.iter().map(|own| own.count).min();
                fewest = fewest.saturating_add(least.unwrap_or(0));
                requests.push(alternatives);
            }
            if fewest > MAX_RESULTS {
                let key = claim.key;
                return Err(Refusal::Broken(format!(
                    "claim {key}: number of requested devices {fewest} exceeds the claim limit of {MAX_RESULTS}"
                )));
            }
            all.push(requests);
        }
        Ok(all)
    }

    fn alternatives(&mut self, claim: &Wanted<'a>, own: &'a Request) -> Result<Vec<Prepared<'a>>, Refusal> {
        if let Some(exactly) = &own.exactly {
            return Ok(vec![self.one(claim, &own.name, None, exactly)?]);
        }
        let alternatives = own.first_available.iter();
        alternatives
            .map(|alternative| self.one(claim, &alternative.name, Some(&own.name), alternative))
            .collect()
    }

    fn one(
        &mut self,
        claim: &Wanted<'a>,
        name: &'a str,
        parent: Option<&'a str>,
        request: &'a DeviceRequest,
    ) -> Result<Prepared<'a>, Refusal> {
        self.around.budget.spend(1)?;
        let broken = |why: String| Refusal::Broken(format!("claim {}, request {name}{why}", claim.key));
        if let Some(at) = request.selectors.iter().position(|own| own.cel.is_none()) {
            return Err(broken(format!(
                ", selector #{at}: CEL expression empty (unsupported selector type?)"
            )));
        }
        let class_name = &*request.device_class_name;
        if class_name.is_empty() {
            return Err(broken(
                ": missing device class name (unsupported request type?)".to_owned(),
            ));
        }
        let class = self.around.devices.classes.get(class_name).ok_or_else(|| {
            let missing = format!("deviceclass.resource.k8s.io \"{class_name}\" not found");
            broken(format!(
                ": could not retrieve device class {class_name}: {missing}"
            ))
        })?;
        let mut own = Prepared {
            number: self.made,
            claim_key: claim.key,
            name,
            parent,
            request,
            class_name,
            class,
            count: 0,
            all: None,
        };
        self.made += 1;
        match &*request.allocation_mode {
            "ExactCount" => own.count = usize::try_from(request.count).unwrap_or(0),
            "All" => {
                let all = self.all_of(&own).map_err(|why| match why {
                    AllProblem::Pool(why) => broken(why),
                    AllProblem::Refused(why) => why,
                })?;
                own.count = all.len();
                own.all = Some(all);
            }
            other => return Err(broken(format!(": unsupported count mode {other}"))),
        }
        Ok(own)
    }

    /// All devices that a request selects; unknown while a pool is replaced.
    fn all_of(&mut self, own: &Prepared<'a>) -> Result<Vec<Place<'a>>, AllProblem> {
        let mut all = Vec::new();
        for (pool, places) in self.pools.iter().zip(self.places) {
            let problem = match pool {
                _ if pool.is_incomplete => "being updated",
                _ if pool.is_invalid() => "invalid",
                _ => "",
            };
            if !problem.is_empty() {
                let (driver, name) = pool.id;
                return Err(AllProblem::Pool(format!(
                    ": asks for all devices, but resource pool {driver}/{name} is currently {problem}"
                )));
            }
            for place in places {
                self.around.budget.spend(1).map_err(AllProblem::Refused)?;
                let selectable = self.matches.is_selectable(self.around, own, *place);
                if !selectable.map_err(AllProblem::Refused)? {
                    continue;
                }
                let steps = capacity::steps(place.device);
                self.around.budget.spend(steps).map_err(AllProblem::Refused)?;
                // All that could have it when it is free: what claims have of them is looked at later.
                let room = capacity::consumed(own.request.capacity.as_ref(), place.device, None, None);
                let device = &place.device.id.device;
                let checked =
                    |why| AllProblem::Pool(format!(": checking capacity for device {device}: {why}"));
                if room.map_err(checked)?.is_some() {
                    all.push(*place);
                }
            }
        }
        Ok(all)
    }
}

enum AllProblem {
    Pool(String),
    Refused(Refusal),
}
