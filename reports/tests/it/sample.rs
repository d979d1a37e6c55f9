//! Small runs that the tests render.

use metaroce_reports::{
    AdapterExit, ClauseInfo, Conduct, Finding, IutInfo, RunHeader, RunResult, Selection, Side,
    TestResult, Unmonitored, Verdict, Versions, Violation,
};

/// What an implementation that attacks its reader would send: colours, other controls, ends of markup, pipes, mentions,
/// reordering, and text that looks like an escape made by the renderers.
pub const HOSTILE: &str = "\x1b[31mred\x1b[0m \0\r\n\t]]></failure><script>alert('&amp;')</script>| a || b `x` ``y`` \
    **bold** @everyone #1 [link](http://example.invalid) \u{202e}reversed\u{202c} \u{9b}2J \u{ffff} \\u{41} \\| \"quoted\"";

pub fn header(tests: &[TestResult]) -> RunHeader {
    RunHeader {
        versions: Versions {
            suite: "0.1.0".into(),
            specification: "0.1".into(),
            specification_digest: "sha256:0f1e2d".into(),
            profile: "metaroce-open 0.1".into(),
        },
        seed: u64::MAX,
        link: "sim".into(),
        iut: IutInfo {
            name: "example".into(),
            version: "2.3".into(),
            command: Some("example-adapter --fast".into()),
        },
        peer: IutInfo {
            name: "reference".into(),
            version: "0.1.0".into(),
            command: None,
        },
        selection: Selection {
            filter: None,
            pics: "full".into(),
            tests: tests.iter().map(|test| test.id.clone()).collect(),
        },
    }
}

pub fn clause(id: &str) -> ClauseInfo {
    ClauseInfo {
        id: id.into(),
        level: "MUST".into(),
        role: "sender".into(),
        excluded_by: None,
    }
}

pub fn excluded(id: &str) -> ClauseInfo {
    ClauseInfo {
        excluded_by: Some("pics item retirement".into()),
        ..clause(id)
    }
}

pub fn test(id: &str, findings: Vec<Finding>) -> TestResult {
    TestResult {
        id: id.into(),
        title: format!("Title of {id}"),
        scenario: format!("{id}.yaml"),
        evidence: Some(format!("{id}/capture.pcapng")),
        declaration_sha256: None,
        conduct: Conduct::Sound,
        verdict: Verdict::Error,
        reason: None,
        adapters: Vec::new(),
        findings,
    }
}

pub fn unsound(id: &str, conduct: Conduct, reason: &str, findings: Vec<Finding>) -> TestResult {
    TestResult {
        conduct,
        reason: Some(reason.into()),
        ..test(id, findings)
    }
}

pub fn pass(clause: &str, exercised: u64) -> Finding {
    Finding::judged(clause, exercised, Vec::new(), 0)
}

pub fn fail(clause: &str, exercised: u64) -> Finding {
    let violation = Violation {
        frames: vec![12, 15],
        expected: "PSN 0x00000007 on path 2".into(),
        seen: "PSN 0x00000008 on path 3".into(),
    };
    Finding::judged(clause, exercised, vec![violation], 2)
}

pub fn assemble(clauses: &[ClauseInfo], tests: Vec<TestResult>) -> RunResult {
    RunResult::assemble(header(&tests), clauses, tests, Vec::new()).unwrap()
}

/// One of everything but an error, which would hide the failure.
pub fn sample() -> RunResult {
    let clauses = [
        clause("PKT-001"),
        clause("STRM-004"),
        clause("REL-007"),
        clause("ECN-002"),
        clause("CONN-011"),
        excluded("PATH-020"),
    ];
    let mut ce_echo = unsound(
        "ce-echo",
        Conduct::Inconclusive,
        "the mark was not delivered: rule 1 never matched",
        vec![pass("PKT-001", 0), pass("ECN-002", 4)],
    );
    ce_echo.adapters.push(AdapterExit {
        side: Side::Iut,
        reason: "exit status 3".into(),
    });
    let mut retire = unsound(
        "retire",
        Conduct::NotApplicable,
        "pics item retirement",
        Vec::new(),
    );
    retire.evidence = None;
    let tests = vec![
        test(
            "write-in-order",
            vec![
                pass("PKT-001", 120),
                pass("STRM-004", 8),
                pass("REL-007", 0),
            ],
        ),
        test(
            "loss-recovery",
            vec![pass("PKT-001", 64), fail("REL-007", 5)],
        ),
        ce_echo,
        retire,
    ];
    let unmonitored = vec![
        Unmonitored {
            clause: "CONV-003".into(),
            reason: "not observable from outside".into(),
        },
        Unmonitored {
            clause: "PATH-004".into(),
            reason: "no monitor yet".into(),
        },
        Unmonitored {
            clause: "CONV-005".into(),
            reason: "not observable from outside".into(),
        },
    ];
    RunResult::assemble(header(&tests), &clauses, tests, unmonitored).unwrap()
}

/// A run in which every text that comes from outside is hostile, besides a very long one.
pub fn hostile() -> RunResult {
    let hostile = || HOSTILE.to_owned();
    let finding = |clause: &str, seen: String| {
        let violation = Violation {
            frames: (1..=1000).collect(),
            expected: hostile(),
            seen,
        };
        Finding::judged(clause, 1, vec![violation], u64::MAX)
    };
    let mut failing = test(
        HOSTILE,
        vec![
            finding("REL-007", hostile()),
            finding("REL-008", "é\x1b".repeat(200_000)),
            Finding::inconclusive("REL-009", 3, HOSTILE),
        ],
    );
    failing.title = hostile();
    failing.scenario = hostile();
    failing.evidence = Some(hostile());
    let mut broken = unsound("broken", Conduct::Error, HOSTILE, vec![fail("REL-010", 1)]);
    broken.adapters.push(AdapterExit {
        side: Side::Iut,
        reason: hostile(),
    });
    // Two ids that become the same once their characters are spelled out, were the escape not escaped.
    let twins = ["a\x1b", "a\\u{1b}"].map(|id| {
        let mut twin = unsound(id, Conduct::Inconclusive, HOSTILE, Vec::new());
        twin.evidence = None;
        twin
    });
    let [first, second] = twins;
    let tests = vec![failing, broken, first, second];
    let mut header = header(&tests);
    header.iut = IutInfo {
        name: hostile(),
        version: hostile(),
        command: Some(hostile()),
    };
    header.selection.filter = Some(hostile());
    header.selection.pics = hostile();
    let mut odd = excluded("REL-012");
    odd.excluded_by = Some(hostile());
    odd.level = hostile();
    odd.role = hostile();
    let ids = ["REL-007", "REL-008", "REL-009", "REL-010", "REL-011"];
    let mut clauses: Vec<ClauseInfo> = ids.map(clause).into();
    clauses.push(odd);
    let unmonitored = vec![Unmonitored {
        clause: hostile(),
        reason: hostile(),
    }];
    RunResult::assemble(header, &clauses, tests, unmonitored).unwrap()
}
