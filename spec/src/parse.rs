//! Chapters to clauses.
//!
//! A clause is a heading of level 4 with the id, one or more paragraphs with the statement, and a list of bullets.
//! Everything else in a chapter is informative, and no key word stands in capitals there. An HTML comment ends a clause:
//! what stands between `<!-- table X -->` or its like and `<!-- end -->` is generated, see [`crate::block`].

use std::collections::BTreeMap;
use std::mem;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::block::Marker;
use crate::digest::normalised;
use crate::{CHAPTERS, Clause, Level, Observability, Retired, Role, Source, TableError};

/// Every clause of the specification, in reading order.
///
/// # Errors
/// The first [`Error`] in a chapter.
pub fn clauses() -> Result<Vec<Clause>, Error> {
    let mut all = Vec::new();
    for (name, _, text) in CHAPTERS {
        all.append(&mut parse_chapter(name, text)?);
    }
    refuse_retired(&all, &crate::retired().map_err(Error::of_data)?)?;
    Ok(all)
}

fn refuse_retired(clauses: &[Clause], retired: &[Retired]) -> Result<(), Error> {
    let in_use = clauses
        .iter()
        .find(|clause| retired.iter().any(|retired| retired.id == clause.id));
    in_use.map_or(Ok(()), |clause| {
        Err(Error {
            chapter: clause.chapter.clone(),
            line: clause.line,
            defect: Defect::Retired {
                id: clause.id.clone(),
            },
        })
    })
}

/// The clauses of one chapter. `name` is the file name of one of [`CHAPTERS`], which settles the prefix of the ids.
///
/// # Errors
/// The first [`Error`] in the text.
pub fn parse_chapter(name: &str, text: &str) -> Result<Vec<Clause>, Error> {
    let at = |line, defect| Error {
        chapter: name.to_owned(),
        line,
        defect,
    };
    let prefix = CHAPTERS
        .iter()
        .find_map(|&(known, prefix, _)| (known == name).then_some(prefix))
        .ok_or_else(|| at(1, Defect::UnknownChapter))?;
    let features = crate::features().map_err(Error::of_data)?;
    let mut reader = Reader::new(name, prefix, features.into_iter().map(|f| f.id).collect());
    for block in blocks(text) {
        reader
            .block(block)
            .map_err(|(line, defect)| at(line, defect))?;
    }
    reader.finish().map_err(|(line, defect)| at(line, defect))
}

/// What is wrong with a chapter, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{chapter}:{line}: {defect}")]
pub struct Error {
    /// File name of the chapter.
    pub chapter: String,
    /// Line in it, from 1.
    pub line: usize,
    /// What is wrong there.
    pub defect: Defect,
}

impl Error {
    fn of_data(error: TableError) -> Self {
        Self {
            chapter: error.file.clone(),
            line: usize::try_from(error.line).unwrap_or_default(),
            defect: Defect::Data {
                message: error.message,
            },
        }
    }
}

/// What can be wrong with a chapter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The file is none of the specification's chapters.
    #[error("not a chapter of this specification")]
    UnknownChapter,
    /// A heading of level 4 is no id of this chapter.
    #[error("`{found}` is not an id of the form {prefix}-nnn")]
    BadId {
        /// The heading.
        found: String,
        /// The prefix of this chapter.
        prefix: &'static str,
    },
    /// An id is used twice.
    #[error("{id} stands at line {first} already")]
    DuplicateId {
        /// The id.
        id: String,
        /// Line of its first use.
        first: usize,
    },
    /// Ids rise within a chapter.
    #[error("{id} stands after {previous}")]
    NotAscending {
        /// The id that is out of order.
        id: String,
        /// The one before it.
        previous: String,
    },
    /// A statement has no key word.
    #[error("{id} has no key word")]
    NoKeyWord {
        /// The clause.
        id: String,
    },
    /// A statement has more than one key word, and so is more than one statement.
    #[error("{id} has {count} key words instead of one")]
    ManyKeyWords {
        /// The clause.
        id: String,
        /// How many there are.
        count: usize,
    },
    /// A key word in capitals stands outside a statement, where it binds nobody.
    #[error("key word {word} in capitals outside a statement")]
    StrayKeyWord {
        /// The key word.
        word: String,
    },
    /// Something besides a statement and its bullets stands in a clause.
    #[error("{id} holds something besides a statement and its bullets")]
    StrayBlock {
        /// The clause.
        id: String,
    },
    /// A bullet is not there.
    #[error("{id} lacks the bullet `{bullet}`")]
    MissingBullet {
        /// The clause.
        id: String,
        /// Name of the bullet.
        bullet: &'static str,
    },
    /// A bullet is there twice.
    #[error("bullet `{bullet}` a second time")]
    DuplicateBullet {
        /// Name of the bullet.
        bullet: String,
    },
    /// A bullet has an unknown name or none.
    #[error("`{text}` is none of the bullets {}", BULLETS.join(", "))]
    UnknownBullet {
        /// The whole bullet.
        text: String,
    },
    /// A bullet has a value that it cannot have.
    #[error("`{found}` is no {bullet}")]
    BadBullet {
        /// Name of the bullet.
        bullet: &'static str,
        /// Its value.
        found: String,
    },
    /// An id that was given up is in use.
    #[error("{id} is retired and is never used again")]
    Retired {
        /// The id.
        id: String,
    },
    /// A generated block has no end, or an end no block.
    #[error("`{marker}` is not closed by `<!-- end -->`, or closes nothing")]
    Unpaired {
        /// The comment.
        marker: String,
    },
    /// A file that the chapters refer to is not sound.
    #[error("{message}")]
    Data {
        /// What is wrong with it.
        message: String,
    },
}

/// Names of the bullets of a clause.
const BULLETS: [&str; 6] = [
    "role",
    "source",
    "observed",
    "revision",
    "requires",
    "exception",
];

/// A piece of a chapter that stands on its own, as plain text.
struct Block {
    kind: BlockKind,
    line: usize,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Heading(HeadingLevel),
    Paragraph,
    Bullet,
    Html,
    Other,
}

/// Cuts a chapter into blocks. Markup within a block is dropped; a list item is one block with all it holds.
fn blocks(text: &str) -> Vec<Block> {
    let line_of = |offset: usize| {
        let before = text.as_bytes().iter().take(offset);
        1 + before.filter(|&&byte| byte == b'\n').count()
    };
    let mut out: Vec<Block> = Vec::new();
    let mut open: Vec<BlockKind> = Vec::new();
    let mut current = String::new();
    let mut start = 0;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                if let Some(kind) = opened(&tag) {
                    if open.is_empty() {
                        current.clear();
                        start = range.start;
                    } else {
                        // Blocks inside blocks, such as the paragraphs of a list item, must not glue words together.
                        current.push(' ');
                    }
                    open.push(kind);
                }
            }
            Event::End(tag) if closes(tag) => {
                if let (Some(kind), true) = (open.pop(), open.is_empty()) {
                    out.push(Block {
                        kind,
                        line: line_of(start),
                        text: normalised(&mem::take(&mut current)),
                    });
                }
            }
            Event::Text(piece)
            | Event::Code(piece)
            | Event::Html(piece)
            | Event::InlineHtml(piece) => {
                current.push_str(&piece);
            }
            Event::SoftBreak | Event::HardBreak => current.push(' '),
            _ => {}
        }
    }
    out
}

/// The kind of block that a tag opens; `None` for markup within a block and for the frame around list items.
fn opened(tag: &Tag<'_>) -> Option<BlockKind> {
    match tag {
        Tag::Heading { level, .. } => Some(BlockKind::Heading(*level)),
        Tag::Paragraph => Some(BlockKind::Paragraph),
        Tag::Item => Some(BlockKind::Bullet),
        Tag::HtmlBlock => Some(BlockKind::Html),
        Tag::CodeBlock(_)
        | Tag::BlockQuote(_)
        | Tag::TableHead
        | Tag::TableRow
        | Tag::TableCell => Some(BlockKind::Other),
        _ => None,
    }
}

/// Whether a tag's end closes what [`opened`] has opened.
fn closes(tag: TagEnd) -> bool {
    matches!(
        tag,
        TagEnd::Heading(_)
            | TagEnd::Paragraph
            | TagEnd::Item
            | TagEnd::CodeBlock
            | TagEnd::HtmlBlock
            | TagEnd::BlockQuote(_)
            | TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::TableCell
    )
}

type Located<T> = Result<T, (usize, Defect)>;

/// Puts clauses together from blocks.
struct Reader<'n> {
    chapter: &'n str,
    prefix: &'static str,
    features: Vec<String>,
    done: Vec<Clause>,
    draft: Option<Draft>,
    /// The generated block that is being passed over, and its line.
    generated: Option<(usize, String)>,
}

/// A clause that is being read.
struct Draft {
    id: String,
    line: usize,
    statement: String,
    bullets: BTreeMap<String, (usize, String)>,
}

impl<'n> Reader<'n> {
    fn new(chapter: &'n str, prefix: &'static str, features: Vec<String>) -> Self {
        Self {
            chapter,
            prefix,
            features,
            done: Vec::new(),
            draft: None,
            generated: None,
        }
    }

    fn block(&mut self, block: Block) -> Located<()> {
        if let (BlockKind::Heading(_), Some(_)) = (block.kind, &self.generated) {
            return self.unpaired();
        }
        let is_statement = block.kind == BlockKind::Paragraph
            && self.draft.as_ref().is_some_and(|d| d.bullets.is_empty());
        if !is_statement && let Some((_, word)) = key_words(&block.text).into_iter().next() {
            return Err((block.line, Defect::StrayKeyWord { word }));
        }
        if block.kind == BlockKind::Html && block.text.starts_with("<!--") {
            self.close()?;
            return self.comment(block.line, block.text);
        }
        if self.generated.is_some() {
            return Ok(());
        }
        match (block.kind, &mut self.draft) {
            (BlockKind::Heading(level), _) => {
                self.close()?;
                if level == HeadingLevel::H4 {
                    self.draft = Some(self.open(block.line, block.text)?);
                }
                Ok(())
            }
            (_, None) => Ok(()),
            (BlockKind::Paragraph, Some(draft)) if is_statement => {
                draft.statement.push(' ');
                draft.statement.push_str(&block.text);
                Ok(())
            }
            (BlockKind::Bullet, Some(draft)) => draft.bullet(block.line, &block.text),
            (_, Some(draft)) => Err((
                block.line,
                Defect::StrayBlock {
                    id: draft.id.clone(),
                },
            )),
        }
    }

    /// Refuses a generated block that has not ended.
    fn unpaired(&mut self) -> Located<()> {
        let open = self.generated.take();
        open.map_or(Ok(()), |(line, marker)| {
            Err((line, Defect::Unpaired { marker }))
        })
    }

    fn comment(&mut self, line: usize, text: String) -> Located<()> {
        let end = match Marker::read(&text) {
            None => return Ok(()),
            Some(Marker::End) => true,
            Some(_) => false,
        };
        if end != self.generated.is_some() {
            return Err((line, Defect::Unpaired { marker: text }));
        }
        self.generated = (!end).then_some((line, text));
        Ok(())
    }

    fn open(&self, line: usize, id: String) -> Located<Draft> {
        let digits = id
            .strip_prefix(self.prefix)
            .and_then(|rest| rest.strip_prefix('-'));
        let well_formed =
            digits.is_some_and(|d| d.len() == 3 && d.bytes().all(|b| b.is_ascii_digit()));
        if !well_formed {
            return Err((
                line,
                Defect::BadId {
                    found: id,
                    prefix: self.prefix,
                },
            ));
        }
        if let Some(earlier) = self.done.iter().find(|clause| clause.id == id) {
            let first = earlier.line;
            return Err((line, Defect::DuplicateId { id, first }));
        }
        // The number has a fixed width, so that the order of the ids is that of their text.
        if let Some(last) = self.done.last().filter(|last| last.id > id) {
            let previous = last.id.clone();
            return Err((line, Defect::NotAscending { id, previous }));
        }
        Ok(Draft {
            id,
            line,
            statement: String::new(),
            bullets: BTreeMap::new(),
        })
    }

    fn close(&mut self) -> Located<()> {
        if let Some(draft) = self.draft.take() {
            let clause = draft.into_clause(self.chapter, &self.features)?;
            self.done.push(clause);
        }
        Ok(())
    }

    fn finish(mut self) -> Located<Vec<Clause>> {
        self.close()?;
        self.unpaired()?;
        Ok(self.done)
    }
}

impl Draft {
    fn bullet(&mut self, line: usize, text: &str) -> Located<()> {
        let named = text
            .split_once(':')
            .filter(|(name, _)| BULLETS.contains(name));
        let Some((name, value)) = named else {
            let text = text.to_owned();
            return Err((line, Defect::UnknownBullet { text }));
        };
        let bullet = name.to_owned();
        let value = value.trim().to_owned();
        if self.bullets.contains_key(&bullet) {
            return Err((line, Defect::DuplicateBullet { bullet }));
        }
        self.bullets.insert(bullet, (line, value));
        Ok(())
    }

    fn into_clause(mut self, chapter: &str, features: &[String]) -> Located<Clause> {
        let text = normalised(&self.statement);
        let id = self.id.clone();
        let level = match key_words(&text).as_slice() {
            [(level, _)] => *level,
            [] => return Err((self.line, Defect::NoKeyWord { id })),
            many => {
                let count = many.len();
                return Err((self.line, Defect::ManyKeyWords { id, count }));
            }
        };
        let role = self.required("role", Role::from_name)?;
        let source = self.required("source", Source::parse)?;
        let observability = self.required("observed", Observability::from_name)?;
        let revision = self.optional("revision", amended)?.unwrap_or(1);
        let requires = self.optional("requires", |names| known_features(names, features))?;
        let written = |value: &str| (!value.is_empty()).then(|| value.to_owned());
        let has_exception = self.bullets.contains_key("exception");
        // A clause that nobody can observe owes the reason.
        let exception = if has_exception || observability == Observability::None {
            Some(self.required("exception", written)?)
        } else {
            None
        };
        Ok(Clause {
            id,
            level,
            role,
            source,
            observability,
            text,
            revision,
            requires: requires.unwrap_or_default(),
            exception,
            chapter: chapter.to_owned(),
            line: self.line,
        })
    }

    fn optional<T>(
        &mut self,
        bullet: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Located<Option<T>> {
        if self.bullets.contains_key(bullet) {
            self.required(bullet, read).map(Some)
        } else {
            Ok(None)
        }
    }

    fn required<T>(
        &mut self,
        bullet: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Located<T> {
        let Some((line, found)) = self.bullets.remove(bullet) else {
            let id = self.id.clone();
            return Err((self.line, Defect::MissingBullet { id, bullet }));
        };
        read(&found).ok_or((line, Defect::BadBullet { bullet, found }))
    }
}

/// A revision after the first, written in one way only.
fn amended(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number >= 2 && number.to_string() == text).then_some(number)
}

/// Names of features, each known and named once.
fn known_features(text: &str, features: &[String]) -> Option<Vec<String>> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    let sound = |(i, name): (usize, &String)| features.contains(name) && !names[..i].contains(name);
    names.iter().enumerate().all(sound).then_some(names)
}

/// The key words of BCP 14 in capitals, in order. A negated one is one key word.
fn key_words(text: &str) -> Vec<(Level, String)> {
    let words: Vec<&str> = text
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .collect();
    let mut found = Vec::new();
    for (i, &word) in words.iter().enumerate() {
        let next_is_not = words.get(i + 1) == Some(&"NOT");
        let after_not = i > 0 && words.get(i - 1) == Some(&"NOT");
        let (level, negated) = match word {
            "MUST" | "SHALL" if next_is_not => (Level::MustNot, true),
            "SHOULD" if next_is_not => (Level::ShouldNot, true),
            "RECOMMENDED" if after_not => (Level::ShouldNot, false),
            "MUST" | "SHALL" | "REQUIRED" => (Level::Must, false),
            "SHOULD" | "RECOMMENDED" => (Level::Should, false),
            "MAY" | "OPTIONAL" => (Level::May, false),
            _ => continue,
        };
        let shown = match (negated, after_not && word == "RECOMMENDED") {
            (true, _) => format!("{word} NOT"),
            (_, true) => format!("NOT {word}"),
            _ => word.to_owned(),
        };
        found.push((level, shown));
    }
    found
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
