use crate::certificate::Certificate;
use crate::testing::{
    Authority, NOW, authority_params, client_params, intermediate, leaf, params, root, subject, verify_at,
};
use crate::{
    Authorities, MAX_CERTIFICATES, MAX_SIGNATURE_CHECKS, Malformed, PeerCertificate, Unverified, UserError,
    Verified, certificate_bundle,
};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, DnValue, ExtendedKeyUsagePurpose as Usage,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints, SanType,
};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

/// The common name of a leaf that the authority signs after this change, or why there is none.
fn signed(by: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Result<String, Unverified> {
    let mut own = client_params("anna");
    change(&mut own);
    verify_at(&[by.der()], &[&leaf(&own, by)], NOW).map(|found| found.common_name.clone())
}

fn anna() -> Result<String, Unverified> {
    Ok("anna".to_owned())
}

fn extension(is_critical: bool) -> CustomExtension {
    let mut own = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57_683, 99], vec![5, 0]);
    own.set_criticality(is_critical);
    own
}

#[test]
fn leaf_is_verified_by_the_rules_of_go() {
    let by = root(authority_params("ca"));
    let usages = |usages: &[Usage]| {
        let usages = usages.to_vec();
        signed(&by, |own| own.extended_key_usages = usages)
    };
    assert_eq!(usages(&[Usage::ClientAuth]), anna());
    assert_eq!(usages(&[Usage::ServerAuth, Usage::ClientAuth]), anna());
    assert_eq!(usages(&[Usage::Any]), anna());
    assert_eq!(usages(&[]), anna());
    assert_eq!(usages(&[Usage::ServerAuth]), Err(Unverified::KeyUsage));
    assert_eq!(
        signed(&by, |own| own.is_ca = IsCa::Ca(BasicConstraints::Constrained(0))),
        anna()
    );
    assert_eq!(
        signed(&by, |own| own.key_usages = vec![KeyUsagePurpose::CrlSign]),
        anna()
    );
    assert_eq!(
        signed(&by, |own| own.custom_extensions = vec![extension(false)]),
        anna()
    );
    assert_eq!(
        signed(&by, |own| own.custom_extensions = vec![extension(true)]),
        Err(Unverified::UnknownCriticalExtension)
    );
    let other = root(authority_params("other"));
    let of_other = leaf(&client_params("anna"), &other);
    assert_eq!(
        verify_at(&[by.der()], &[&of_other], NOW),
        Err(Unverified::UnknownAuthority)
    );
    let alone = client_params("anna");
    let alone = alone.self_signed(&KeyPair::generate().unwrap()).unwrap();
    assert_eq!(
        verify_at(&[by.der()], &[alone.der()], NOW),
        Err(Unverified::UnknownAuthority),
        "signed by itself"
    );
    let forged = root(authority_params("ca"));
    let forged = leaf(&client_params("anna"), &forged);
    assert_eq!(
        verify_at(&[by.der()], &[&forged], NOW),
        Err(Unverified::Signature)
    );
    let own = leaf(&client_params("anna"), &by);
    assert!(
        verify_at(&[&own], &[&own], NOW).is_ok(),
        "a leaf of the bundle itself"
    );
    assert!(
        verify_at(&[by.der()], &[by.der()], NOW).is_ok(),
        "an authority as a client"
    );
}

#[test]
fn leaf_counts_from_its_first_to_its_last_second_and_its_authoritys() {
    let by = root(authority_params("ca"));
    let mut longer = client_params("anna");
    longer.not_before = rcgen::date_time_ymd(2020, 1, 1);
    longer.not_after = rcgen::date_time_ymd(2046, 1, 1);
    let shorter = leaf(&client_params("anna"), &by);
    let mut old = authority_params("ca");
    old.not_before = rcgen::date_time_ymd(2000, 1, 1);
    old.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let old = root(old);
    for (of, authority) in [
        (&shorter, &by),
        (&leaf(&longer, &by), &by),
        (&leaf(&client_params("anna"), &old), &old),
    ] {
        let at = |at: &str| verify_at(&[authority.der()], &[of], at).map(drop);
        assert_eq!(at("2025-12-31T23:59:59.9Z"), Err(Unverified::Expired));
        assert_eq!(at("2026-01-01T00:00:00Z"), Ok(()));
        assert_eq!(at("2036-01-01T00:00:00Z"), Ok(()));
        assert_eq!(at("2036-01-01T00:00:00.1Z"), Err(Unverified::Expired));
    }
}

#[test]
fn intermediate_certificates_are_authorities_within_their_path() {
    let top = root(authority_params("top"));
    let middle = intermediate(authority_params("middle"), &top);
    let low = intermediate(authority_params("low"), &middle);
    let of_low = leaf(&client_params("anna"), &low);
    let through = |chain: &[&CertificateDer<'static>]| verify_at(&[top.der()], chain, NOW).map(drop);
    assert_eq!(through(&[&of_low, low.der(), middle.der()]), Ok(()));
    assert_eq!(
        through(&[&of_low, middle.der(), low.der()]),
        Ok(()),
        "in any order"
    );
    assert_eq!(through(&[&of_low, low.der()]), Err(Unverified::UnknownAuthority));
    assert_eq!(
        verify_at(&[top.der(), middle.der()], &[&of_low, low.der()], NOW).map(drop),
        Ok(())
    );
    let at = |at: &str| verify_at(&[top.der()], &[&of_low, low.der(), middle.der()], at).map(drop);
    assert_eq!(at("2036-01-01T00:00:01Z"), Err(Unverified::Expired));
    assert_eq!(at("2025-12-31T23:59:59Z"), Err(Unverified::Expired));
    let mut short = authority_params("top");
    short.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let short = root(short);
    let below = intermediate(authority_params("below"), &short);
    assert_eq!(
        verify_at(
            &[short.der()],
            &[&leaf(&client_params("anna"), &below), below.der()],
            NOW
        )
        .map(drop),
        Err(Unverified::TooManyIntermediates)
    );
    assert_eq!(signed(&short, |_| {}), anna());
    let mut server = authority_params("server");
    server.extended_key_usages = vec![Usage::ServerAuth];
    let server = intermediate(server, &top);
    let of_server = leaf(&client_params("anna"), &server);
    assert_eq!(through(&[&of_server, server.der()]), Err(Unverified::KeyUsage));
    for change in [
        (|own| own.is_ca = IsCa::NoCa) as fn(&mut CertificateParams),
        |own| own.is_ca = IsCa::ExplicitNoCa,
        |own| own.key_usages = vec![KeyUsagePurpose::CrlSign],
    ] {
        let mut own = authority_params("own");
        change(&mut own);
        let own = intermediate(own, &top);
        let below = leaf(&client_params("anna"), &own);
        assert_eq!(
            through(&[&below, own.der()]),
            Err(Unverified::NotAuthorizedToSign)
        );
    }
}

#[test]
fn name_constraints_bind_what_is_below_them() {
    let dns = |name: &str| GeneralSubtree::DnsName(name.to_owned());
    let mut own = authority_params("ca");
    own.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![
            dns("example.com"),
            GeneralSubtree::Rfc822Name("example.com".to_owned()),
        ],
        excluded_subtrees: vec![dns("secret.example.com")],
    });
    let by = root(own);
    let named = |names: &[SanType]| {
        let names = names.to_vec();
        signed(&by, |own| own.subject_alt_names = names)
    };
    let name = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let refused = |name: &str| Err(Unverified::Name(name.to_owned()));
    assert_eq!(named(&[]), anna(), "the common name is not bound");
    assert_eq!(named(&[name("a.example.com"), name("Example.com")]), anna());
    assert_eq!(
        named(&[name("a.example.com"), name("example.org")]),
        refused("example.org")
    );
    assert_eq!(
        named(&[name("a.secret.example.com")]),
        refused("a.secret.example.com")
    );
    assert_eq!(named(&[name("*.example.com")]), refused("*.example.com"));
    assert_eq!(
        named(&[SanType::Rfc822Name("a@example.com".try_into().unwrap())]),
        anna()
    );
    assert_eq!(
        named(&[SanType::Rfc822Name("a@a.example.org".try_into().unwrap())]),
        refused("a@a.example.org")
    );
    assert_eq!(named(&[SanType::IpAddress([10, 0, 0, 1].into())]), anna());
    assert_eq!(
        named(&[SanType::URI("urn:x".try_into().unwrap())]),
        refused("urn:x"),
        "without a host it cannot be compared"
    );
}

#[test]
fn name_constraints_of_other_kinds_are_critical_extensions() {
    let mut own = authority_params("ca");
    let directory = subject(&[(DnType::OrganizationName, "blue".into())]);
    own.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DirectoryName(directory)],
        excluded_subtrees: Vec::new(),
    });
    assert_eq!(
        signed(&root(own), |_| {}),
        Err(Unverified::UnknownCriticalExtension)
    );
}

#[test]
fn chains_of_strangers_cost_a_bounded_number_of_signatures() {
    let top = root(authority_params("top"));
    let many: Vec<_> = (0..MAX_CERTIFICATES)
        .map(|_| leaf(&client_params("anna"), &top))
        .collect();
    let mut chain: Vec<_> = many.iter().collect();
    assert!(verify_at(&[top.der()], &chain, NOW).is_ok());
    let one_more = leaf(&client_params("anna"), &top);
    chain.push(&one_more);
    assert_eq!(verify_at(&[top.der()], &chain, NOW), Err(Unverified::TooMany));

    // Each may have signed each of the others.
    let key = KeyPair::generate().unwrap();
    let of_circle = |number: usize| {
        let mut own = authority_params("circle");
        let name = format!("n{number}.example.com");
        own.subject_alt_names = vec![SanType::DnsName(name.as_str().try_into().unwrap())];
        own
    };
    let circle: Vec<_> = (1..MAX_CERTIFICATES)
        .map(|number| of_circle(number).self_signed(&key).unwrap().der().clone())
        .collect();
    let issuer = rcgen::Issuer::new(of_circle(0), &key);
    let own = client_params("anna")
        .signed_by(&KeyPair::generate().unwrap(), &issuer)
        .unwrap();
    let chain: Vec<_> = [own.der()].into_iter().chain(&circle).collect();
    assert_eq!(
        verify_at(&[top.der()], &chain, NOW),
        Err(Unverified::TooManySignatures)
    );
}

#[test]
fn authorities_of_one_name_are_all_tried() {
    let all: Vec<_> = (0..MAX_SIGNATURE_CHECKS)
        .map(|_| root(authority_params("ca")))
        .collect();
    let roots: Vec<_> = all.iter().map(|own| own.der()).collect();
    let mut own = client_params("anna");
    own.use_authority_key_identifier_extension = false;
    let own = leaf(&own, all.last().unwrap());
    assert_eq!(verify_at(&roots, &[&own], NOW).map(drop), Ok(()));
}

/// A handshake with one of these is broken off, here and in Go.
#[test]
fn certificates_that_go_does_not_read_are_malformed() {
    let by = root(authority_params("ca"));
    let malformed = |change: &dyn Fn(&mut CertificateParams)| {
        let found = signed(&by, |own| change(own));
        assert!(matches!(found, Err(Unverified::Malformed(_))), "{found:?}");
    };
    let uri = |uri: &str| SanType::URI(uri.try_into().unwrap());
    for wrong in ["http://a b/%zz", "spiffe://x./y"] {
        malformed(&|own| own.subject_alt_names = vec![uri(wrong)]);
    }
    let of_number = |number: u64| CustomExtension::from_oid_content(&[1, 3, 6, number], vec![5, 0]);
    malformed(&|own| own.custom_extensions = vec![of_number(1 << 31)]);
    assert_eq!(
        signed(&by, |own| own.custom_extensions = vec![of_number((1 << 31) - 1)]),
        anna()
    );
    let policies = |der: &[u8]| CustomExtension::from_oid_content(&[2, 5, 29, 32], der.to_vec());
    let policy = [0x30, 3, 6, 1, 0x2a];
    let twice = [&[0x30, 10], policy.as_slice(), policy.as_slice()].concat();
    malformed(&|own| own.custom_extensions = vec![policies(&twice)]);
    let once = [&[0x30, 5], policy.as_slice()].concat();
    assert_eq!(
        signed(&by, |own| own.custom_extensions = vec![policies(&once)]),
        anna()
    );
}

#[test]
fn bundle_is_read_around_what_is_no_certificate() {
    let (one, other) = (root(authority_params("one")), root(authority_params("other")));
    let (one, other) = (one.pem(), other.pem());
    let with_headers = one.replacen("-----\n", "-----\nProc-Type: 4\n\n", 1);
    let cut = &one[..one.len() / 2];
    let count = |text: &str| certificate_bundle(text).map(|all| all.len()).ok();
    assert_eq!(count(&format!("{with_headers}# other\n{other}{cut}")), Some(1));
    assert_eq!(count(&format!("{one}\u{fffd}\n{other}")), Some(2));
    assert_eq!(count(cut), None);
    let of_nothing = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
    assert_eq!(count(&format!("{one}{of_nothing}")), None);
}

fn user_of(parts: &[(DnType, DnValue)]) -> Verified {
    let by = root(authority_params("ca"));
    let mut own = client_params("");
    own.distinguished_name = subject(parts);
    let found = verify_at(&[by.der()], &[&leaf(&own, &by)], NOW).unwrap();
    Verified::clone(&found)
}

/// Upstream's number.
fn uid() -> DnType {
    DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57_683, 2])
}

#[test]
fn user_of_a_certificate_is_upstreams() {
    let bmp = DnValue::BmpString(rcgen::string::BmpString::try_from("bänd").unwrap());
    let found = user_of(&[
        (DnType::CommonName, "first".into()),
        (DnType::OrganizationName, bmp),
        (uid(), "u-1".into()),
        (DnType::CustomDnType(vec![2, 5, 4, 3]), "last".into()),
    ]);
    assert_eq!(found.common_name, "last");
    let user = found.user.unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("last", "u-1"));
    assert_eq!(user.groups, ["bänd"]);
    let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
    assert_eq!(id.len(), "X509SHA256=".len() + 64);
    let nobody = user_of(&[
        (DnType::OrganizationName, "system:masters".into()),
        (uid(), "".into()),
    ]);
    assert_eq!((nobody.common_name.as_str(), nobody.user), ("", Ok(None)));
    let several = user_of(&[
        (DnType::CommonName, "anna".into()),
        (DnType::OrganizationName, "one".into()),
        (DnType::CustomDnType(vec![2, 5, 4, 10]), "two".into()),
    ]);
    assert_eq!(several.user.unwrap().unwrap().groups, ["one", "two"]);
    let empty = user_of(&[(DnType::CommonName, "anna".into()), (uid(), "".into())]);
    assert_eq!(empty.user, Err(UserError::EmptyUid));
}

#[test]
fn finding_is_kept_while_the_chain_counts_and_a_refusal_for_a_moment() {
    let (by, other) = (root(authority_params("ca")), root(authority_params("ca")));
    let authorities = Authorities::new(vec![by.der().clone()]).unwrap();
    let peer = PeerCertificate::new(&[leaf(&client_params("anna"), &by)]).unwrap();
    let at = |at: &str| authorities.verified(&peer, at.parse().unwrap());
    let (first, later) = (at(NOW).unwrap(), at("2035-01-01T00:00:00Z").unwrap());
    assert!(Arc::ptr_eq(&first, &later), "nothing is verified anew");
    assert_eq!(at("2036-01-01T00:00:01Z"), Err(Unverified::Expired));

    authorities.replace(vec![other.der().clone()]).unwrap();
    assert_eq!(at(NOW), Err(Unverified::Signature));
    authorities.replace(vec![by.der().clone()]).unwrap();
    assert_eq!(at(NOW).map(|found| found.common_name.clone()), anna());
    let second = Authorities::new(vec![other.der().clone()]).unwrap();
    let before = at(NOW).unwrap();
    assert_eq!(
        second.verified(&peer, NOW.parse().unwrap()),
        Err(Unverified::Signature)
    );
    assert!(
        Arc::ptr_eq(&before, &at(NOW).unwrap()),
        "two sets keep a finding each"
    );
    assert_eq!(
        peer.not_after(),
        Some("2036-01-01T00:00:00Z".parse::<Timestamp>().unwrap())
    );
}

#[test]
fn certificates_of_any_bytes_are_read_in_proportion_to_their_length() {
    let by = root(authority_params("ca"));
    let mut rich = client_params("anna");
    rich.subject_alt_names = vec![
        SanType::DnsName("a.example.com".try_into().unwrap()),
        SanType::URI("spiffe://example.com/a".try_into().unwrap()),
        SanType::Rfc822Name("a@example.com".try_into().unwrap()),
        SanType::IpAddress([10, 0, 0, 1].into()),
    ];
    rich.custom_extensions = vec![extension(false)];
    let mut bound = authority_params("bound");
    bound.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".to_owned())],
        excluded_subtrees: vec![GeneralSubtree::IpAddress(rcgen::CidrSubnet::V4(
            [10, 0, 0, 0],
            [255, 0, 0, 0],
        ))],
    });
    let bound = intermediate(bound, &by);
    let corpus = [
        by.der().clone(),
        bound.der().clone(),
        leaf(&rich, &bound),
        leaf(&params("plain"), &by),
    ];
    let authorities = Authorities::new(vec![by.der().clone()]).unwrap();
    machinery_fuzz::fuzz(&corpus, |input| {
        let _ = machinery_fuzz::in_proportion(input, 64, || Certificate::read(input).map(drop));
        let own = CertificateDer::from(input);
        for chain in [
            std::slice::from_ref(&own),
            &[own.clone(), bound.der().clone()],
            &[corpus[2].clone(), own.clone()],
        ] {
            let peer = PeerCertificate::new(chain).unwrap();
            assert!(peer.identifier().len() < 512);
            drop(authorities.verified(&peer, NOW.parse().unwrap()));
        }
    });
    assert_eq!(
        Certificate::read(&[&corpus[0][..], &[0]].concat()).map(drop),
        Err(Malformed("trailing data"))
    );
}
