//! Selecting tests and clauses: `id(glob)`, `clause(glob)`, `tag(name)` with `and`, `or`, `not` and parentheses.

/// A filter expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// The test's id.
    Id(Term),
    /// The clause's id.
    Clause(Term),
    /// A tag of the scenario.
    Tag(Term),
    /// Both.
    And(Box<Filter>, Box<Filter>),
    /// Either.
    Or(Box<Filter>, Box<Filter>),
    /// Not.
    Not(Box<Filter>),
}

/// A name or pattern, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The name, or the pattern in which `*` stands for anything and `?` for one character.
    pub text: String,
    /// Column in the filter, from 1, in characters.
    pub column: usize,
}

/// What there is to select from.
#[derive(Debug, Clone, Copy)]
pub struct Known<'k> {
    /// Ids of all tests.
    pub tests: &'k [String],
    /// All tags.
    pub tags: &'k [String],
    /// Ids of all clauses of the specification.
    pub clauses: &'k [String],
}

/// What a filter is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'s> {
    /// Id of the test: that of its scenario, with the role where there is a choice.
    pub id: &'s str,
    /// Tags of its scenario.
    pub tags: &'s [String],
    /// A clause.
    pub clause: &'s str,
}

impl Filter {
    /// Reads an expression.
    ///
    /// # Errors
    /// A message that names the column.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser {
            text,
            at: 0,
            depth: 0,
        };
        let filter = parser.or()?;
        if parser.rest().is_empty() {
            Ok(filter)
        } else {
            Err(parser.error("and, or, or the end"))
        }
    }

    /// Whether the filter selects the clause in the test.
    pub fn selects(&self, subject: &Subject<'_>) -> bool {
        match self {
            Self::Id(glob) => {
                let scenario = subject.id.split('.').next().unwrap_or(subject.id);
                matches(&glob.text, subject.id) || matches(&glob.text, scenario)
            }
            Self::Clause(glob) => matches(&glob.text, subject.clause),
            Self::Tag(name) => subject.tags.contains(&name.text),
            Self::And(a, b) => a.selects(subject) && b.selects(subject),
            Self::Or(a, b) => a.selects(subject) || b.selects(subject),
            Self::Not(a) => !a.selects(subject),
        }
    }
}

impl Filter {
    /// Refuses names and patterns that fit nothing there is: a slip of the pen would otherwise select too little.
    ///
    /// # Errors
    /// A message that names the column.
    pub fn check(&self, text: &str, known: &Known<'_>) -> Result<(), String> {
        let (term, what, list, all) = match self {
            Self::And(a, b) | Self::Or(a, b) => {
                return a.check(text, known).and_then(|()| b.check(text, known));
            }
            Self::Not(a) => return a.check(text, known),
            Self::Id(term) => (term, "test", "metaroce run --list", known.tests),
            Self::Tag(term) => (term, "tag", "metaroce run --list", known.tags),
            Self::Clause(term) => (term, "clause", "metaroce clauses", known.clauses),
        };
        let fits = |name: &String| match self {
            Self::Tag(_) => *name == term.text,
            Self::Id(_) => {
                let scenario = name.split('.').next().unwrap_or(name);
                matches(&term.text, name) || matches(&term.text, scenario)
            }
            _ => matches(&term.text, name),
        };
        if all.iter().any(fits) {
            return Ok(());
        }
        let message = format!(
            "there is no {what} {}: `{list}` shows those there are",
            term.text
        );
        Err(at(text, term.column, &message))
    }
}

/// A message with the filter and a mark below the column.
fn at(text: &str, column: usize, message: &str) -> String {
    format!(
        "filter, line 1, column {column}: {message}\n  {text}\n  {}^",
        " ".repeat(column - 1)
    )
}

/// Whether `text` fits `glob`, in which `*` stands for anything and `?` for one character.
fn matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    // Position to go back to: behind the latest star, and in the text.
    let (mut g, mut t, mut back) = (0, 0, None);
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                back = Some((g + 1, t));
                g += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                g += 1;
                t += 1;
            }
            _ => match back {
                Some((star, from)) => {
                    back = Some((star, from + 1));
                    (g, t) = (star, from + 1);
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

/// Deepest nesting.
const DEEPEST: u32 = 64;

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: u32,
}

impl Parser<'_> {
    fn rest(&mut self) -> &str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn error(&self, expected: &str) -> String {
        let column = self.text[..self.at].chars().count() + 1;
        at(self.text, column, &format!("expected {expected}"))
    }

    fn word(&mut self, word: &str) -> bool {
        let rest = self.rest();
        let ends = rest[word.len().min(rest.len())..]
            .chars()
            .next()
            .is_none_or(|c| !c.is_alphanumeric());
        let found = rest.starts_with(word) && ends;
        if found {
            self.at += word.len();
        }
        found
    }

    fn or(&mut self) -> Result<Filter, String> {
        let mut left = self.and()?;
        while self.word("or") {
            left = Filter::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Filter, String> {
        let mut left = self.not()?;
        while self.word("and") {
            left = Filter::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Filter, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("less nesting"));
        }
        let filter = if self.word("not") {
            Filter::Not(Box::new(self.not()?))
        } else {
            self.term()?
        };
        self.depth -= 1;
        Ok(filter)
    }

    fn term(&mut self) -> Result<Filter, String> {
        if self.rest().starts_with('(') {
            self.at += 1;
            let inner = self.or()?;
            if !self.rest().starts_with(')') {
                return Err(self.error(")"));
            }
            self.at += 1;
            return Ok(inner);
        }
        for (name, make) in [
            ("id", Filter::Id as fn(Term) -> Filter),
            ("clause", Filter::Clause),
            ("tag", Filter::Tag),
        ] {
            if self.word(name) {
                let Some(inner) = self.rest().strip_prefix('(') else {
                    return Err(self.error("("));
                };
                let Some(end) = inner.find(')') else {
                    return Err(self.error("a closing )"));
                };
                let argument = inner[..end].trim().to_owned();
                let end_at = self.at + 1 + end + 1;
                self.at += 1;
                if argument.is_empty() {
                    return Err(self.error("a name or pattern"));
                }
                self.rest();
                let column = self.text[..self.at].chars().count() + 1;
                self.at = end_at;
                return Ok(make(Term {
                    text: argument,
                    column,
                }));
            }
        }
        Err(self.error("id(...), clause(...), tag(...), not or ("))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(filter: &str) -> bool {
        let tags = ["loss".to_owned()];
        Filter::parse(filter).unwrap().selects(&Subject {
            id: "gap-in-a-write",
            tags: &tags,
            clause: "REL-031",
        })
    }

    #[test]
    fn expressions_select() {
        for yes in [
            "id(gap-*)",
            "clause(REL-*) and tag(loss)",
            "not tag(ecn)",
            "id(x) or id(*write)",
            "(id(x) or tag(loss)) and not clause(PKT-???)",
        ] {
            assert!(selects(yes), "{yes}");
        }
        for no in [
            "id(gap)",
            "tag(ecn)",
            "clause(REL-0??) and not tag(loss)",
            "not (id(*) or tag(x))",
        ] {
            assert!(!selects(no), "{no}");
        }
    }

    #[test]
    fn names_that_fit_nothing_are_refused() {
        let [tests, tags, clauses] =
            ["gap-in-a-write", "loss", "REL-031"].map(|name| vec![name.to_owned()]);
        let known = Known {
            tests: &tests,
            tags: &tags,
            clauses: &clauses,
        };
        let check = |text: &str| Filter::parse(text).unwrap().check(text, &known);
        for sound in [
            "id(gap-*)",
            "tag(loss) and not clause(REL-*)",
            "clause( REL-031 )",
        ] {
            assert_eq!(check(sound), Ok(()));
        }
        for (wrong, column, name) in [
            ("clause(REL-31)", 8, "clause REL-31"),
            ("id(gap-*) and not ( tag( los ) )", 26, "tag los"),
            ("tag(loss*)", 5, "tag loss*"),
            ("id(é) or id(x)", 4, "test é"),
        ] {
            let error = check(wrong).unwrap_err();
            assert!(error.contains(&format!("column {column}:")), "{error}");
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn errors_name_the_column() {
        for (bad, column) in [
            ("", 1),
            ("id", 3),
            ("id(x", 3),
            ("id()", 4),
            ("id(x) tag(y)", 7),
            ("(id(x)", 7),
            ("foo(x)", 1),
        ] {
            let error = Filter::parse(bad).unwrap_err();
            assert!(
                error.contains(&format!("column {column}:")),
                "{bad}: {error}"
            );
        }
        assert!(Filter::parse(&"(".repeat(10_000)).is_err());
        assert!(Filter::parse(&"not ".repeat(10_000)).is_err());
    }
}
