//! Thresholds: as flags have them, when they are met, and what follows.

use node_sys::fs::FsUsage;

use super::{at, observed, threshold};
use crate::eviction::config::EvictionConfig;
use crate::eviction::observations::{Observations, Readings};
use crate::eviction::signal::Signal;
use crate::eviction::state::{EvictionState, met};
use crate::eviction::thresholds::{
    EvictionThreshold, Threshold, Thresholds, parse_minimum_reclaim, parse_thresholds,
};
use crate::node::reserve::Reserve;

fn config(soft: &str, grace: &[(&str, u64)], reclaim: &str) -> EvictionConfig {
    let periods = grace
        .iter()
        .map(|(name, seconds)| ((*name).to_owned(), at(*seconds)));
    EvictionConfig {
        soft: parse_thresholds(soft).unwrap(),
        soft_grace_period: periods.collect(),
        minimum_reclaim: parse_minimum_reclaim(reclaim).unwrap(),
        ..EvictionConfig::default()
    }
}

fn reserve(hard: &str, enforce: &[&str]) -> Reserve {
    Reserve {
        eviction_hard: parse_thresholds(hard).unwrap(),
        enforce: enforce.iter().map(|level| (*level).to_owned()).collect(),
        ..Reserve::default()
    }
}

/// `TestParseThresholdConfig` and `TestAddAllocatableThresholds`.
#[test]
fn thresholds_of_flags_are_upstreams() {
    let told = |hard: &str, soft: &str, grace: &[(&str, u64)], reclaim: &str, enforce: &[&str]| {
        let all = config(soft, grace, reclaim).thresholds(&reserve(hard, enforce));
        let line = |own: &EvictionThreshold| {
            let (whole, seconds) = (1_000_000, own.grace_period.as_secs());
            let reclaim = own
                .minimum_reclaim
                .map_or(String::new(), |reclaim| format!(" +{}", reclaim.quantity(whole)));
            format!(
                "{}<{}{reclaim} {seconds}s",
                own.signal.name(),
                own.level.quantity(whole)
            )
        };
        all.iter().map(line).collect::<Vec<_>>()
    };
    assert!(told("", "", &[], "", &["pods"]).is_empty());
    let memory = [("memory.available", 30)];
    assert_eq!(
        told(
            "memory.available<150Mi",
            "memory.available<300Mi",
            &memory,
            "memory.available=0",
            &["pods"]
        ),
        [
            "memory.available<150Mi +0 0s",
            "memory.available<300Mi +0 30s",
            "allocatableMemory.available<150Mi +0 0s"
        ]
    );
    assert_eq!(
        told(
            "memory.available<10%",
            "memory.available<30%",
            &memory,
            "memory.available=5%",
            &[]
        ),
        [
            "memory.available<100000 +50000 0s",
            "memory.available<300000 +50000 30s"
        ]
    );
    let disks = [("imagefs.available", 30), ("nodefs.available", 30)];
    assert_eq!(
        told(
            "imagefs.available<150Mi,nodefs.available<100Mi,containerfs.available<9Mi",
            "imagefs.available<300Mi,nodefs.available<200Mi",
            &disks,
            "imagefs.available=2Gi,nodefs.available=1Gi",
            &["pods"]
        ),
        [
            "imagefs.available<150Mi +2Gi 0s",
            "nodefs.available<100Mi +1Gi 0s",
            "imagefs.available<300Mi +2Gi 30s",
            "nodefs.available<200Mi +1Gi 30s"
        ]
    );
    assert!(told("memory.available<0%", "memory.available<100%", &[], "", &["pods"]).is_empty());
}

#[test]
fn thresholds_that_are_none_are_refused_as_upstream_refuses_them() {
    for refused in [
        "mem.available<150Mi",
        "memory.available<-150Mi",
        "memory.available<-15%",
        "memory.available<150%",
        "memory.available<150Mi,invalid.foo<150Mi",
        "memory.available<",
        "memory.available<10..5%",
    ] {
        assert!(parse_thresholds(refused).is_err(), "{refused}");
    }
    for refused in [
        "memory.available=-300Mi",
        "mem.available=300Mi",
        "memory.available=",
        "memory.available=-15%",
        "memory.available=10..5%",
    ] {
        assert!(parse_minimum_reclaim(refused).is_err(), "{refused}");
    }
    let without = config("memory.available<150Mi", &[], "").problems();
    assert_eq!(
        without,
        ["--eviction-soft: grace period must be specified for the soft eviction threshold memory.available"]
    );
}

#[test]
fn threshold_flags_are_read_in_upstreams_words() {
    let refused = |text: &str| parse_thresholds(text).unwrap_err();
    assert_eq!(
        parse_thresholds("memory.available<0%,nodefs.available<100%").unwrap(),
        Thresholds::new()
    );
    for (text, words) in [
        ("memory.available=1Gi", "malformed pair, expect string<string"),
        ("mem.available<1Gi", "unsupported eviction signal mem.available"),
        (
            "memory.available<-5%",
            "eviction percentage threshold memory.available must be >= 0%: -5%",
        ),
        (
            "memory.available<101%",
            "eviction percentage threshold memory.available must be <= 100%: 101%",
        ),
        (
            "memory.available<0",
            "eviction threshold memory.available must be positive: 0",
        ),
    ] {
        assert_eq!(refused(text), words);
    }
}

/// `TestThresholdsMet` and `TestPercentageThresholdsMet`.
#[test]
fn thresholds_are_met_as_upstreams() {
    let memory = Signal::MemoryAvailable;
    let hard = [threshold(memory, "1Gi", 0, Some("500Mi"))];
    let count = |available: &str, with_reclaim| met(&hard, &observed(memory, available), with_reclaim).len();
    assert_eq!(met(&hard, &Observations::new(), false).len(), 0, "not observed");
    assert_eq!((count("500Mi", false), count("500Mi", true)), (1, 1));
    assert_eq!((count("2Gi", false), count("2Gi", true)), (0, 0));
    assert_eq!((count("1Gi", false), count("1100Mi", true)), (0, 1));
    let share = EvictionThreshold {
        level: Threshold::Share(0.2),
        minimum_reclaim: Some(Threshold::Share(0.05)),
        ..hard[0]
    };
    let count =
        |available: &str, with_reclaim| met(&[share], &observed(memory, available), with_reclaim).len();
    assert_eq!((count("1Gi", false), count("1Gi", true)), (1, 1));
    assert_eq!((count("2100Mi", false), count("2100Mi", true)), (0, 1));
    assert_eq!(count("2600Mi", true), 0);
}

/// The way of `TestMemoryPressure`: a hard and a soft threshold, their grace and the time of transition.
#[test]
fn pressure_comes_and_goes_as_upstreams() {
    let memory = Signal::MemoryAvailable;
    let thresholds = [
        threshold(memory, "1Gi", 0, None),
        threshold(memory, "2Gi", 120, None),
    ];
    let mut state = EvictionState::default();
    let mut observe = |available: &str, now: u64| {
        let verdict = state.observe(&thresholds, &observed(memory, available), at(300), at(now));
        let periods: Vec<u64> = verdict
            .thresholds
            .iter()
            .map(|own| own.grace_period.as_secs())
            .collect();
        (verdict.pressure.memory, periods)
    };
    assert_eq!(observe("2Gi", 0), (false, vec![]));
    assert_eq!(observe("1500Mi", 60), (true, vec![]), "its grace goes on");
    assert_eq!(observe("1500Mi", 180), (true, vec![120]));
    assert_eq!(observe("3Gi", 1380), (false, vec![]));
    assert_eq!(observe("500Mi", 1440), (true, vec![0]));
    assert_eq!(
        observe("3Gi", 1739),
        (true, vec![]),
        "the time of transition goes on"
    );
    assert_eq!(observe("3Gi", 1740), (false, vec![]));
}

/// `TestMinReclaim`.
#[test]
fn minimum_is_reclaimed_before_a_threshold_is_met_no_longer() {
    let memory = Signal::MemoryAvailable;
    let thresholds = [threshold(memory, "1Gi", 0, Some("500Mi"))];
    let mut state = EvictionState::default();
    let mut observe = |available: &str, now: u64| {
        let verdict = state.observe(&thresholds, &observed(memory, available), at(300), at(now));
        (verdict.pressure.memory, verdict.thresholds.len())
    };
    assert_eq!(observe("2Gi", 0), (false, 0));
    assert_eq!(observe("500Mi", 60), (true, 1));
    assert_eq!(observe("1200Mi", 120), (true, 1), "500Mi more have to be free");
    assert_eq!(observe("2Gi", 180), (true, 0));
    assert_eq!(observe("2Gi", 480), (false, 0));
}

/// `TestSortByEvictionPriority` and `TestNodeConditions`.
#[test]
fn memory_is_reclaimed_before_all_else_and_each_signal_has_its_condition() {
    let mut thresholds: Vec<EvictionThreshold> = [
        Signal::NodeFsAvailable,
        Signal::PidAvailable,
        Signal::AllocatableMemoryAvailable,
    ]
    .map(|signal| threshold(signal, "1Gi", 0, None))
    .into();
    let observations: Observations = thresholds
        .iter()
        .flat_map(|own| observed(own.signal, "1Mi"))
        .collect();
    let verdict = EvictionState::default().observe(&thresholds, &observations, at(300), at(0));
    assert_eq!(verdict.thresholds[0].signal, Signal::AllocatableMemoryAvailable);
    assert_eq!(verdict.thresholds.len(), 3);
    let all = ["MemoryPressure", "DiskPressure", "PIDPressure"];
    assert_eq!(verdict.pressure.conditions(), all);
    thresholds.truncate(1);
    let verdict = EvictionState::default().observe(&thresholds, &observations, at(0), at(0));
    assert_eq!(
        verdict.pressure.conditions(),
        ["DiskPressure"],
        "without a transition, too"
    );
}

#[test]
fn observations_are_those_of_the_machine() {
    let node_fs = FsUsage {
        capacity_bytes: 5000,
        usable_bytes: 1000,
        available_bytes: 100,
        ..FsUsage::default()
    };
    let readings = Readings {
        memory: (1, 8),
        pods_memory: Some((6, 4)),
        node_fs,
        image_fs: None,
        tasks: Some((30, 100)),
    };
    let told = |readings: Readings| {
        let all = readings.observations().into_iter();
        all.map(|(signal, own)| (signal.name(), own.available, own.capacity))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        told(readings),
        [
            ("memory.available", 1, 8),
            ("allocatableMemory.available", 0, 4),
            ("nodefs.available", 100, 1000),
            ("imagefs.available", 100, 1000),
            ("pid.available", 70, 100)
        ]
    );
    assert!(
        told(Readings::default()).is_empty(),
        "what is not known is short of nothing"
    );
    let image_fs = Some(FsUsage {
        usable_bytes: 7,
        ..FsUsage::default()
    });
    assert!(told(Readings { image_fs, ..readings }).contains(&("imagefs.available", 0, 7)));
}

#[test]
fn grace_period_of_an_eviction_is_upstreams() {
    let (hard, soft) = (
        threshold(Signal::MemoryAvailable, "1Gi", 0, None),
        threshold(Signal::MemoryAvailable, "1Gi", 60, None),
    );
    let seconds = |most: i64, threshold: &EvictionThreshold, own: i64| {
        let config = EvictionConfig {
            max_pod_grace_period_seconds: most,
            ..EvictionConfig::default()
        };
        config.grace_period_seconds(threshold, own)
    };
    assert_eq!(seconds(60, &hard, 30), 1);
    assert_eq!((seconds(60, &soft, 30), seconds(5, &soft, 30)), (30, 5));
    assert_eq!(seconds(-1, &soft, 30), 30);
}
