//! The cases of Go's `nameConstraintsTests`, with the answers of Go 1.26 for the usage of clients.

use crate::Unverified;
use crate::testing::{NOW, authority_params, client_params, params, subject, verify_at};
use rcgen::{
    CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose as Usage, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use std::net::IpAddr;

const CASES: &str = include_str!("../testdata/name_constraints.jsons");

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap();
    let [high, low] = length.to_be_bytes();
    [&[tag, 0x82, high, low][..], content].concat()
}

/// The shortest form, as DER has it.
fn der(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    let content = parts.concat();
    match u8::try_from(content.len()) {
        Ok(length @ 0..=0x7f) => [&[tag, length], content.as_slice()].concat(),
        Ok(length) => [&[tag, 0x81, length], content.as_slice()].concat(),
        Err(_) => element(tag, &content),
    }
}

fn address(text: &str) -> Vec<u8> {
    match text.parse().unwrap() {
        IpAddr::V4(own) => own.octets().to_vec(),
        IpAddr::V6(own) => own.octets().to_vec(),
    }
}

fn network(text: &str) -> Vec<u8> {
    let (own, bits) = text.split_once('/').unwrap();
    let (own, bits) = (address(own), bits.parse::<usize>().unwrap());
    let bit = |at: usize| if at < bits { 0x80 >> (at % 8) } else { 0_u8 };
    let byte = |at: usize| (at * 8..at * 8 + 8).map(bit).sum::<u8>();
    let mask: Vec<u8> = (0..own.len()).map(byte).collect();
    [own, mask].concat()
}

fn general_name(text: &str, address: fn(&str) -> Vec<u8>) -> Vec<u8> {
    let (kind, own) = text.split_once(':').unwrap();
    let (tag, content) = match kind {
        "dns" => (0x82, own.into()),
        "email" => (0x81, own.into()),
        "uri" => (0x86, own.into()),
        "ip" => (0x87, address(own)),
        _ => (9, vec![1]),
    };
    der(tag, &[content])
}

fn texts(value: &Value) -> Vec<&str> {
    let list = value.as_array().into_iter().flatten();
    list.map(|own| own.as_str().unwrap()).collect()
}

fn usages(value: &Value) -> Vec<Usage> {
    let usage = |own: &&str| match *own {
        "serverAuth" => Usage::ServerAuth,
        "clientAuth" => Usage::ClientAuth,
        "email" => Usage::EmailProtection,
        "any" => Usage::Any,
        "netscapeSGC" => Usage::Other(vec![2, 16, 840, 1, 113_730, 4, 1]),
        "msSGC" => Usage::Other(vec![1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
        _ => Usage::Other(vec![2, 4, 1, 2, 3]),
    };
    texts(value).iter().map(usage).collect()
}

fn authority(name: &str, case: &Value) -> CertificateParams {
    let mut own = authority_params(name);
    own.extended_key_usages = usages(&case["usages"]);
    let subtrees = |tag: u8, list: &Value| {
        let subtree = |own: &&str| der(0x30, &[general_name(own, network)]);
        let all: Vec<_> = texts(list).iter().map(subtree).collect();
        if all.is_empty() {
            Vec::new()
        } else {
            der(tag, &all)
        }
    };
    let constraints = [subtrees(0xa0, &case["ok"]), subtrees(0xa1, &case["bad"])];
    if !constraints.concat().is_empty() {
        let content = der(0x30, &constraints);
        own.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 30], content)];
    }
    own
}

fn client(case: &Value) -> CertificateParams {
    let mut own = client_params("");
    let unit = (DnType::OrganizationalUnitName, "Leaf".into());
    let name = case["common_name"].as_str();
    let name = name.map(|name| (DnType::CommonName, name.into()));
    own.distinguished_name = subject(&[vec![unit], name.into_iter().collect()].concat());
    own.is_ca = IsCa::ExplicitNoCa;
    own.extended_key_usages = usages(&case["usages"]);
    let names: Vec<_> = texts(&case["names"])
        .iter()
        .map(|own| general_name(own, address))
        .collect();
    if !names.is_empty() {
        let content = der(0x30, &names);
        own.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], content)];
    }
    own
}

/// The answer to the leaf of a case. All authorities of a level have one name and one key.
fn answer(case: &Value) -> Result<(), Unverified> {
    let key = || KeyPair::generate().unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut parent = (params("root"), key());
    let mut roots = Vec::new();
    for own in list(&case["roots"]) {
        parent.0 = authority("root", &own);
        roots.push(parent.0.self_signed(&parent.1).unwrap().der().clone());
    }
    let mut chain: Vec<CertificateDer<'static>> = Vec::new();
    for (level, all) in list(&case["intermediates"]).iter().enumerate() {
        let (mut last, own_key) = (None, key());
        for own in list(all) {
            let own = authority(&format!("level {level}"), &own);
            let by = Issuer::from_params(&parent.0, &parent.1);
            chain.push(own.signed_by(&own_key, &by).unwrap().der().clone());
            last = Some(own);
        }
        parent = (last.unwrap(), own_key);
    }
    let by = Issuer::from_params(&parent.0, &parent.1);
    let leaf = client(case).signed_by(&key(), &by).unwrap().der().clone();
    chain.insert(0, leaf);
    let (roots, chain): (Vec<_>, Vec<_>) = (roots.iter().collect(), chain.iter().collect());
    verify_at(&roots, &chain, NOW).map(drop)
}

#[test]
fn name_constraints_are_checked_as_in_go() {
    let mut wrong = Vec::new();
    for case in CASES.lines() {
        let case: Value = serde_json::from_str(case).unwrap();
        let found = answer(&case);
        let kind = match &found {
            Ok(()) => "good",
            Err(Unverified::Name(_)) => "name",
            Err(Unverified::KeyUsage) => "usage",
            Err(_) => "another",
        };
        if kind != case["expected"] {
            wrong.push((case.to_string(), found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
