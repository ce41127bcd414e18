//! Slots of a frontend: which endpoint has which, with as few changes as there can be.

use crate::choice::Target;
use std::collections::BTreeMap;

/// Up to this many endpoints have one slot each.
pub const MAX_EXACT: u16 = 16;
/// More endpoints share a number of slots, eight each at least up to 512 of them: the luckiest has an eighth more
/// than the others.
const SHARED: [(usize, u16); 5] = [(32, 256), (64, 512), (128, 1024), (256, 2048), (usize::MAX, 4096)];
/// Numbers of slots of services that have more frontends than the above leave room for.
const SPARSE: [u16; 3] = [32, 64, 128];
/// Slots of one service, those of all its frontends together: an author of services decides about no more of each
/// node's memory.
pub const MAX_OF_SERVICE: usize = 65_536;

/// Every number of slots that a frontend can have.
pub fn slot_counts() -> impl Iterator<Item = u16> {
    (1..=MAX_EXACT)
        .chain(SPARSE)
        .chain(SHARED.into_iter().map(|(_, slots)| slots))
}

/// Number of slots for so many endpoints, at one of so many frontends of a service. Where a service has very many
/// frontends these may be fewer than there are endpoints.
pub fn slots_for(endpoints: usize, frontends: usize) -> u16 {
    let wanted = match u16::try_from(endpoints) {
        Ok(exact) if exact <= MAX_EXACT => exact,
        _ => SHARED
            .into_iter()
            .find(|(most, _)| endpoints <= *most)
            .map_or(MAX_EXACT, |(_, slots)| slots),
    };
    let most = MAX_OF_SERVICE / frontends.max(1);
    if usize::from(wanted) <= most {
        return wanted;
    }
    let fitting = slot_counts().filter(|slots| usize::from(*slots) <= most);
    fitting.max().unwrap_or(1)
}

/// The endpoint of each of so many slots. One that had a slot keeps it as long as it has no more than its share; slots of
/// those that are gone, and what others have too much, go to those that have too little. Where endpoints are more than
/// slots, some have none.
pub fn assign(before: &BTreeMap<u16, Target>, targets: &[Target], slots: u16) -> Vec<Target> {
    let slots = usize::from(slots);
    if targets.is_empty() {
        return Vec::new();
    }
    let (share, mut larger) = (slots / targets.len(), slots % targets.len());
    let mut held: BTreeMap<Target, usize> = targets.iter().map(|target| (*target, 0)).collect();
    let mut out: Vec<Option<Target>> = vec![None; slots];
    for (slot, place) in (0_u16..).zip(&mut out) {
        let Some(target) = before.get(&slot) else { continue };
        let Some(count) = held.get_mut(target) else {
            continue;
        };
        let extra = *count == share && larger > 0;
        if *count < share || extra {
            *place = Some(*target);
            *count += 1;
            larger -= usize::from(extra);
        }
    }
    // First the share of each in turns, then one more for as many as there are left.
    let mut open: Vec<Target> = Vec::new();
    for round in 0..share {
        let lacking = held
            .iter()
            .filter(|(_, count)| share - (**count).min(share) > round);
        open.extend(lacking.map(|(target, _)| *target));
    }
    let whole = held.iter().filter(|(_, count)| **count <= share);
    open.extend(whole.map(|(target, _)| *target).take(larger));
    let mut open = open.into_iter();
    let fill = |place: Option<Target>| place.or_else(|| open.next());
    out.into_iter()
        .map(fill)
        .map(|target| target.unwrap_or(targets[0]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn targets(range: std::ops::Range<u16>) -> Vec<Target> {
        range
            .map(|index| {
                let [high, low] = index.to_be_bytes();
                (Ipv4Addr::new(10, 244, high, low), 8080)
            })
            .collect()
    }

    /// Assigns slots of a service with one frontend.
    fn assign_of_one(before: &BTreeMap<u16, Target>, targets: &[Target]) -> Vec<Target> {
        assign(before, targets, slots_for(targets.len(), 1))
    }

    fn table(slots: &[Target]) -> BTreeMap<u16, Target> {
        (0..).zip(slots.iter().copied()).collect()
    }

    fn counts(slots: &[Target]) -> BTreeMap<Target, usize> {
        let mut counts = BTreeMap::new();
        slots
            .iter()
            .for_each(|target| *counts.entry(*target).or_default() += 1);
        counts
    }

    #[track_caller]
    fn check_even(slots: &[Target], targets: &[Target]) {
        let counts = counts(slots);
        assert_eq!(counts.len(), targets.len(), "nobody is left out");
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(most - least <= 1, "{least} to {most}");
    }

    /// One endpoint goes and another comes, for every number of endpoints: what changes is the share of those two and,
    /// where shares grow or shrink by the remainder, no more than that again.
    #[test]
    fn slots_change_by_the_share_of_what_changed() {
        for count in 1..=300_u16 {
            let all = targets(0..count);
            let before = assign_of_one(&BTreeMap::new(), &all);
            check_even(&before, &all);
            let mut other = all.clone();
            other.remove(usize::from(count) / 2);
            other.push((Ipv4Addr::new(10, 245, 0, 1), 8080));
            other.sort_unstable();
            let after = assign_of_one(&table(&before), &other);
            check_even(&after, &other);
            let changed = before.iter().zip(&after).filter(|(old, new)| old != new).count();
            let share = before.len().div_ceil(all.len());
            assert!(
                changed <= share,
                "{changed} of {} slots for one of {count}",
                before.len()
            );
            // One more, where the number of slots stays.
            let more = targets(0..count + 1);
            let grown = assign_of_one(&table(&before), &more);
            check_even(&grown, &more);
            if grown.len() == before.len() {
                let changed = before.iter().zip(&grown).filter(|(old, new)| old != new).count();
                assert!(
                    changed <= share,
                    "{changed} of {} slots for one more",
                    before.len()
                );
            } else {
                let kept = before.iter().zip(&grown).filter(|(old, new)| old == new).count();
                assert_eq!(kept, before.len(), "new slots are added to the old ones");
            }
        }
    }

    #[test]
    fn slots_are_what_they_were_whatever_the_order() {
        let mut all = targets(0..40);
        let before = assign_of_one(&BTreeMap::new(), &all);
        all.reverse();
        assert_eq!(assign_of_one(&table(&before), &all), before);
    }

    #[test]
    fn slots_of_a_service_are_bounded_whatever_its_frontends() {
        let counts: Vec<u16> = slot_counts().collect();
        for frontends in [1, 15, 16, 17, 100, 1_000, 4_096, 65_536] {
            for endpoints in [1, 16, 17, 100, 5_000] {
                let slots = slots_for(endpoints, frontends);
                assert!(counts.contains(&slots), "{slots} of {endpoints} and {frontends}");
                assert!(
                    usize::from(slots) * frontends <= MAX_OF_SERVICE,
                    "{endpoints} and {frontends}"
                );
            }
        }
        assert_eq!(
            (slots_for(20, 300), slots_for(17, 1_000)),
            (128, 64),
            "each has one at least"
        );
    }

    #[test]
    fn slots_that_are_too_few_for_all_stay_with_who_has_them() {
        let all = targets(0..40);
        let before = assign(&BTreeMap::new(), &all, 32);
        assert_eq!(counts(&before).len(), 32, "each slot is another's");
        let mut fewer = all.clone();
        fewer.retain(|target| *target != before[7]);
        let after = assign(&table(&before), &fewer, 32);
        let changed = before.iter().zip(&after).filter(|(old, new)| old != new).count();
        assert_eq!((changed, counts(&after).len()), (1, 32));
    }
}
