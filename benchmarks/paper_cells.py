"""The commands with which `benchmarks/papers.py` measures cells of the papers' tables."""

from collections.abc import Mapping
from typing import NamedTuple

FILES = (
    "ubuntu_train_subtask_1.json", "ubuntu_test_subtask_1.json", "ubuntu_responses_subtask_1.tsv",
    "train_self_original.txt", "valid_self_original.txt", "train.csv", "test.csv",
    "articles_train.txt", "articles_test.txt",
    "RC_2015", "toys_and_games.csv",
    "banking77.train.csv", "banking77.train_10shot.csv", "banking77.test.csv",
    "clinc150.train.csv", "clinc150.val.csv", "clinc150.test.csv",
)  # fmt: skip
_VOCAB = "hub_modules/convert_small/1/assets/vocab.txt"
_TRUNK = (
    "--vocab SUBWORDS.txt --num_oov_buckets 10 --model bert_tiny --dropout 0 --max_tokens 64 "
    "--batch_tokens 4000 --learning_rate 2e-3 --warmup_steps 300 --eval_every 5000 --steps 12000"
)
# Folders and files that several cells read, and the commands that make them.
MADE = {
    "REDDIT": ("prepare --input RC_2015 --output REDDIT",),
    "REDDIT_IDS": (f"tokenize --data REDDIT --vocab {_VOCAB} --output REDDIT_IDS",),
    "AMAZON": ("prepare --amazon_qa toys_and_games.csv --output AMAZON",),
    "UBUNTU_TEST": ("prepare --dstc7 ubuntu_test_subtask_1.json --output UBUNTU_TEST",),
    "CONVAI2_TEST": ("prepare --convai2 valid_self_original.txt --output CONVAI2_TEST",),
    "CONVAI2_PERSONA.txt": (
        "python benchmarks/convai2_history.py --input valid_self_original.txt --keep persona "
        "--output CONVAI2_PERSONA.txt",
    ),
    "CONVAI2_TURNS.txt": (
        "python benchmarks/convai2_history.py --input valid_self_original.txt --keep turns "
        "--output CONVAI2_TURNS.txt",
    ),
    "CONVAI2_NUMBERED.jsonl": (
        "python benchmarks/numbered_turns.py --input valid_self_original.txt "
        "--output CONVAI2_NUMBERED.jsonl",
    ),
    "UBUNTU_NUMBERED.jsonl": (
        "python benchmarks/numbered_turns.py --input ubuntu_test_subtask_1.json "
        "--output UBUNTU_NUMBERED.jsonl",
    ),
    "DOCUMENTS": ("prepare --documents articles_train.txt --output DOCUMENTS",),
    "banking77.valid.csv": (
        "python benchmarks/every_eighth.py --input banking77.train.csv "
        "--without banking77.train_10shot.csv --output banking77.valid.csv",
    ),
    "banking77.eighth.csv": (
        "python benchmarks/every_eighth.py --input banking77.train.csv "
        "--output banking77.eighth.csv",
    ),
    "banking77.rest.csv": (
        "python benchmarks/every_eighth.py --input banking77.train.csv --every 1 "
        "--without banking77.eighth.csv --output banking77.rest.csv",
    ),
    "SUBWORDS.txt": ("vocabulary --input REDDIT --min_count 250 --output SUBWORDS.txt",),
    "REDDIT_BERT": (f"pretrain --data REDDIT {_TRUNK} --output REDDIT_BERT",),
    "TINY": (
        "train --data REDDIT_IDS --model tiny --batch_size 128 --steps 2000 --eval_every 1000 "
        "--eval_examples 1000 --output TINY",
    ),
    "DOCUMENTS_BERT": (f"pretrain --data DOCUMENTS {_TRUNK} --output DOCUMENTS_BERT",),
}


class Cell(NamedTuple):
    """Commands that measure one or several cells of a table.

    Attributes:
      name: a unique name that gives the paper, the table and what is measured.
      commands: commands of `convert-tf` (without this word), or `python` with a script of this
        project. RUN stands for the folder of the run, BERT for `--bert`, SEED for the seed, and a
        name in `MADE` for its folder. The last command writes `RUN/result/evaluation.json`. There
        are two exceptions: `benchmarks/heads.py` writes `RUN/heads.json` with all seeds, and
        `benchmarks/ablations.py` writes to `RUN/ablations`.
      seeds: number of seeds.
      paper: the paper's figure for each row of the result. The key `""` stands for all rows.
    """

    name: str
    commands: tuple[str, ...]
    seeds: int = 1
    paper: Mapping[str, str] = {}


_MULTI = "convert_multi_context"
_CONVAI2 = "--candidates valid_self_original.txt"
_DSTC7 = "--candidates ubuntu_test_subtask_1.json"
# `prepare` divides a test file into splits too. Most of its examples are in the train split.
_UBUNTU_BLOCKS = "--data UBUNTU_TEST --split train"
_CONVAI2_BLOCKS = "--data CONVAI2_TEST --split train"


def _module(name: str) -> str:
    """Return the module of a released encoder, whose bare name stands for the 8-bit .onnx file."""
    return f"hub_modules/{name}/1" if name.startswith("convert") else name


def _evaluated(what: str, encoder: str, examples: int, more: str = "") -> tuple[str]:
    return (
        f"evaluate --encoder {_module(encoder)} {what} --max_examples {examples}{more} "
        "--output RUN/result",
    )


def _baselines(what: str, names: str, examples: int, more: str) -> tuple[str]:
    return (
        f"evaluate --baselines {names} {what} --max_examples {examples}{more} --output RUN/result",
    )


def _tuned(
    encoder: str, data: str, test: str, more: str, examples: int, options: str = ""
) -> tuple[str, str]:
    return (
        f"train --recipe paper_finetune --init_from {encoder} --data {data} {more}--seed SEED "
        "--output RUN/run",
        *_evaluated(test, "RUN/run", examples, options),
    )


def _map_of_few(data: str) -> tuple[Cell, Cell]:
    """Return the cells of a table that fit MAP to 500 instead of 9,000 pairs."""
    table = {"REDDIT": "Reddit", "AMAZON": "AmazonQA"}[data]
    few = f"--data {data} --baselines map --max_examples 1000 --train_examples 500"
    return (
        Cell(
            f"ConveRT 3, {table}: MAP on ours, fitted to 500 pairs",
            (f"evaluate {few} --vectors hub_modules/convert_small/1 --output RUN/result",),
        ),
        Cell(
            f"ConveRT 3, {table}: MAP on a universal encoder, fitted to 500 pairs",
            (f"python benchmarks/minilm.py --model universal {few} --output RUN/result",),
        ),
    )


def _heads(heads: str, options: str) -> tuple[str]:
    return (
        f'python benchmarks/heads.py --task in_batch {options} --heads "{heads}" '
        "--output RUN/heads.json",
    )


def _of_poly_4(*figures: str) -> dict[str, str]:
    """Return the paper's figures by head, in order from the bi-encoder to the cross-encoder."""
    heads = ("bi mean", *(f"poly {m} learnt mean" for m in (16, 64, 360)), "cross")
    return dict(zip(heads, figures, strict=False))


_OF_CONVAI2 = "--data train_self_original.txt --eval_data valid_self_original.txt"
_OF_ARTICLES = "--data articles_train.txt --eval_data articles_test.txt"
_ON_OWN_TRUNK = (
    "--examples {} --evaluated 500 --trunk {} --max_context_tokens 120 --freeze nothing --seeds 3"
)
_ON_MINILM = (
    f"{_OF_CONVAI2} --examples 640 --batch_size 16 --evaluated 200 --evaluated_jointly 200 "
    "--trunk BERT --learning_rate 2e-4 --max_context_tokens 48 --seeds 1"
)
_ON_MINILM_3 = (
    "--examples 960 --batch_size 16 --evaluated 200 --evaluated_jointly {} --trunk BERT "
    "--learning_rate 2e-4 --max_context_tokens 48 --seeds 3"
)
_ON_REDDIT = f"{_OF_CONVAI2} {_ON_OWN_TRUNK.format(9000, 'REDDIT_BERT')}"
_ALL_HEADS = "bi,poly 16 learnt,poly 64 learnt,poly 360 learnt,cross"
# Chosen without a comparison. One cell measures ADADELTA, the paper's optimizer.
_FEW_STEPS = "--optimizer adam --learning_rate {} --warmup_steps 5 "
_FT = _FEW_STEPS.format("5e-5") + "--steps 100 --batch_size 32 --eval_every 25 --eval_examples 300 "
_FT_400 = _FT.replace("--steps 100", "--steps 400").replace("every 25", "every 100")
CELLS = (
    Cell(
        "ConveRT 3, Reddit: TF-IDF, BM25",
        _baselines("--data REDDIT", "tfidf,bm25", 1000, ""),
        paper={"TF-IDF": "26.4"},
    ),
    Cell(
        "ConveRT 3, Reddit: SIM and MAP on MiniLM",
        _baselines("--data REDDIT", "sim,map", 1000, " --vectors BERT --train_examples 9000"),
        paper={"MAP BERT": "24.0 (BERT-large)"},
    ),
    Cell(
        "ConveRT 3, Reddit: SIM and MAP on a universal encoder",
        (
            "python benchmarks/minilm.py --model universal --data REDDIT --baselines sim,map "
            "--max_examples 1000 --train_examples 9000 --output RUN/result",
        ),
        paper={"MAP USE multilingual": "47.7 (USE-large)"},
    ),
    Cell(
        "ConveRT 3, Reddit: SIM and MAP on the trunk from Reddit",
        _baselines(
            "--data REDDIT", "sim,map", 1000, " --vectors REDDIT_BERT --train_examples 9000"
        ),
    ),
    Cell(
        "ConveRT 3, Reddit: single-context",
        _evaluated("--data REDDIT", "convert_small", 1000),
        paper={"": "68.2"},
    ),
    Cell(
        "ConveRT 3, Reddit: MAP on ours",
        _baselines(
            "--data REDDIT", "map", 1000,
            " --vectors hub_modules/convert_small/1 --train_examples 9000",
        ),
    ),
    *_map_of_few("REDDIT"),
    Cell(
        "ConveRT 3, Reddit: single-context, the larger encoder",
        _evaluated("--data REDDIT", "convert", 1000),
        paper={"": "68.2"},
    ),
    Cell(
        "ConveRT 3, Reddit: multi-context",
        _evaluated("--data REDDIT", _MULTI, 1000),
        paper={"": "71.8"},
    ),
    Cell(
        "ConveRT 3, Reddit: multi-context, both probes",
        _evaluated("--data REDDIT", _MULTI, 1000, " --history none"),
        paper={"": "65.7, 65.6"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: TF-IDF, BM25",
        _baselines("--data AMAZON", "tfidf,bm25", 1000, ""),
        paper={"TF-IDF": "51.8"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: SIM and MAP on MiniLM",
        _baselines("--data AMAZON", "sim,map", 1000, " --vectors BERT --train_examples 9000"),
        paper={"MAP BERT": "44.1 (BERT-large)"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: SIM and MAP on a universal encoder",
        (
            "python benchmarks/minilm.py --model universal --data AMAZON --baselines sim,map "
            "--max_examples 1000 --train_examples 9000 --output RUN/result",
        ),
        paper={"MAP USE multilingual": "61.9 (USE-large)"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: SIM and MAP on the trunk from Reddit",
        _baselines(
            "--data AMAZON", "sim,map", 1000, " --vectors REDDIT_BERT --train_examples 9000"
        ),
    ),
    Cell(
        "ConveRT 3, AmazonQA: not fine-tuned",
        _evaluated("--data AMAZON", "convert_small", 1000),
        paper={"": "67.0"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: not fine-tuned, the larger encoder",
        _evaluated("--data AMAZON", "convert", 1000),
        paper={"": "67.0"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: MAP on ours",
        _baselines(
            "--data AMAZON", "map", 1000,
            " --vectors hub_modules/convert_small/1 --train_examples 9000",
        ),
        paper={"": "71.6"},
    ),
    *_map_of_few("AMAZON"),
    Cell(
        "ConveRT 3, AmazonQA: fine-tuned",
        _tuned("convert_small", "AMAZON", "--data AMAZON", _FT, 1000),
        seeds=2,
        paper={"": "84.3"},
    ),
    Cell(
        "ConveRT 3, AmazonQA: fine-tuned, 400 steps",
        _tuned("convert_small", "AMAZON", "--data AMAZON", _FT_400, 1000),
        paper={"": "84.3"},
    ),
    Cell(
        "ConveRT 4",
        (
            "python benchmarks/ablations.py --data REDDIT_IDS --seeds 3 --embedding_dim 128 "
            "--max_relative_attention 3,5,48,48,48,48 --steps 800 --split test --examples 10000 "
            "--output RUN/ablations",
        ),
        3,
        {
            "ConveRT": "68.2",
            "A": "68.5, difference +0.3",
            "B": "67.8, difference -0.4",
            "C": "67.7, difference -0.5",
            "D": "68.0, difference -0.2",
            "E": "67.7, difference -0.5",
            "F": "67.8, difference -0.4",
            "D+E+F": "66.7, difference -1.5",
            "B+C+D+E+F": "66.6, difference -1.6",
        },
    ),
    *(
        Cell(
            f"ConveRT (multi-context): ConvAI2, {name}",
            _evaluated(f"--candidates {file}", _MULTI, 500, options),
        )
        for name, file, options in (
            ("history read", "valid_self_original.txt", ""),
            ("without history", "valid_self_original.txt", " --history none"),
            ("persona lines alone", "CONVAI2_PERSONA.txt", ""),
            ("earlier turns alone", "CONVAI2_TURNS.txt", ""),
            ("history read, turns numbered", "CONVAI2_NUMBERED.jsonl", ""),
        )
    ),
    Cell(
        "ConveRT (multi-context): ConvAI2, baselines",
        (
            f"evaluate --baselines tfidf,bm25 --train_data train_self_original.txt {_CONVAI2} "
            "--max_examples 500 --output RUN/result",
        ),
    ),
    Cell(
        "ConveRT 5, 6: baselines",
        (
            f"evaluate --baselines tfidf,bm25 --train_data ubuntu_train_subtask_1.json {_DSTC7} "
            "--max_examples 618 --output RUN/result",
        ),
    ),
    Cell("ConveRT 5, 6: multi, not fine-tuned", _evaluated(_DSTC7, _MULTI, 618)),
    Cell(
        "ConveRT 5, 6: multi, turns numbered, not fine-tuned",
        _evaluated("--candidates UBUNTU_NUMBERED.jsonl", _MULTI, 618),
    ),
    Cell(
        "ConveRT 5, 6: multi without history, not fine-tuned",
        _evaluated(_DSTC7, _MULTI, 618, " --history none"),
    ),
    Cell("ConveRT 5, 6: single, not fine-tuned", _evaluated(_DSTC7, "convert", 618)),
    *(
        Cell(
            f"ConveRT 5, 6, in blocks: {name}, fine-tuned with the paper's optimizer",
            _tuned(
                encoder, "ubuntu_train_subtask_1.json", _UBUNTU_BLOCKS,
                prefixes + _FT.removeprefix(_FEW_STEPS.format("5e-5")), 500,
            ),
            paper={"": figure},
        )
        for name, encoder, prefixes, figure in (
            ("single", "convert", "", "38.2, MRR 0.492"),
            ("multi", _MULTI, "--turn_prefixes ", "71.2, MRR 0.788"),
        )
    ),
    *(
        Cell(f"{table}: {name}", commands, seeds, {"": figure} if figure else {})
        for table, train, test, examples, prefixes, figures in (
            (
                "ConveRT 5, 6, in blocks", "ubuntu_train_subtask_1.json", _UBUNTU_BLOCKS, 500,
                "--turn_prefixes ",
                (
                    "27.2, MRR 0.373", "39.5, MRR 0.494", "38.2, MRR 0.492", "71.2, MRR 0.788",
                    "",
                ),
            ),
            (
                "ConveRT (multi-context), ConvAI2 in blocks", "train_self_original.txt",
                _CONVAI2_BLOCKS, 5000, "", ("",) * 5,
            ),
        )
        for name, commands, seeds, figure in zip(
            (
                "single, not fine-tuned", "multi, not fine-tuned", "single, fine-tuned",
                "multi, fine-tuned", "multi, history_only fine-tuned",
            ),
            (
                _evaluated(test, "convert", examples),
                _evaluated(test, _MULTI, examples),
                _tuned("convert", train, test, _FT, examples),
                _tuned(_MULTI, train, test, f"{prefixes}{_FT}", examples),
                _tuned(_MULTI, train, test, f"--history_only {prefixes}{_FT}", examples),
            ),
            (1, 1, 2, 2, 1),
            figures,
            strict=True,
        )
    ),
    *(
        cell
        for name, train, valid, test, seeds, epochs, (with_r, with_bert) in (
            (
                "BANKING77, all", "banking77.rest.csv", "banking77.eighth.csv",
                "banking77.test.csv", 1, 3, ("92.7 (Banking)", "93.2 (BERT-large, Banking)"),
            ),
            (
                "BANKING77, 10 per intent", "banking77.train_10shot.csv", "banking77.valid.csv",
                "banking77.test.csv", 3, 20, ("92.7 (Banking)", "93.2 (BERT-large, Banking)"),
            ),
            (
                "CLINC150", "clinc150.train.csv", "clinc150.val.csv", "clinc150.test.csv", 1, 3,
                ("", ""),
            ),
        )
        for cell in (
            Cell(
                f"ConveRT 7: {name}, r",
                (
                    "intent train --encoder hub_modules/convert_small/1 --kind reduced --head "
                    f"network --data {train} --validation {valid} --tune --patience 5 --lexical "
                    "none --names none --seed SEED --output RUN/run",
                    f"intent evaluate --model RUN/run --data {test} --output RUN/result",
                ),
                seeds,
                {"": with_r},
            ),
            Cell(
                f"ConveRT 7: {name}, MiniLM fine-tuned",
                (
                    f"python benchmarks/finetuned_bert.py --bert BERT --train {train} "
                    f"--validation {valid} --test {test} --epochs {epochs} --seed SEED "
                    "--output RUN/result",
                ),
                paper={"": with_bert},
            ),
        )
    ),
    *(
        Cell(f"poly {name}", _heads(",".join(figures), options), seeds, figures)
        for name, options, seeds, figures in (
            (
                "2: number of negatives", _ON_REDDIT, 3,
                {
                    "bi": "81.0 (31)", "bi batches of 64": "81.7", "bi batches of 128": "82.3",
                    "bi batches of 256": "83.0", "bi batches of 512": "83.3",
                },
            ),
            *(
                (
                    f"2: MiniLM, 36 steps with batches of {size}",
                    _ON_MINILM.replace("640", f"{36 * size}")
                    .replace("batch_size 16", f"batch_size {size}")
                    .replace("--evaluated 200", "--evaluated 500"),
                    1, {"bi mean": figure},
                )
                for size, figure in ((16, ""), (64, "81.7"))
            ),
            (
                "3: what is fine-tuned", _ON_MINILM, 1,
                {
                    "bi mean top block": "74.2", "bi mean": "83.3",
                    "bi mean all layers": "83.0", "cross top block": "80.6",
                    "cross": "87.3", "cross all layers": "86.6",
                },
            ),
            (
                "3: before fine-tuning", _ON_MINILM.replace("jointly 200", "jointly 500"), 1,
                {"untrained bi mean": "", "untrained bi": "", "untrained cross": ""},
            ),
            (
                "3: more negatives of a cross-encoder", _ON_MINILM, 1,
                {"cross 15 negatives": "87.3 (19)"},
            ),
            ("3: a cross-encoder that reads the mean", _ON_MINILM, 1, {"cross mean": ""}),
            *(
                (
                    f"3: {steps} steps", _ON_MINILM.replace("640", f"{16 * steps}"), 1,
                    {"bi mean": "83.3", "cross": "87.3"},
                )
                for steps in (160, 500)
            ),
            *(
                (
                    f"3: a rate of {rate} for a cross-encoder",
                    _ON_MINILM.replace("2e-4", rate), 1, {"cross": "87.3"},
                )
                for rate in ("5e-5", "6e-4")
            ),
            (
                "3: the top 4 blocks", _ON_MINILM, 1,
                {"bi mean top 4 blocks": "82.0", "cross top 4 blocks": "86.3"},
            ),
            (
                "7: reductions", _ON_REDDIT, 3,
                {
                    "bi first": "83.3", "bi mean of first 16": "82.9",
                    "bi mean of first 64": "82.7", "bi mean": "", "bi mean without first": "83.1",
                },
            ),
            (
                "7: reductions on MiniLM", _ON_MINILM.replace("--evaluated 200", "--evaluated 500"),
                1,
                {
                    "bi first": "83.3", "bi mean of first 16": "82.9", "bi mean": "83.1",
                    "bi mean without first": "83.1",
                },
            ),
            *(
                (
                    f"8: context vectors, {codes}", _ON_MINILM, 1,
                    {
                        f"poly {codes} {variant}": figure
                        for variant, figure in zip(
                            ("learnt", "first_m", "last_m", "last_m_and_first"),
                            figures,
                            strict=False,
                        )
                    },
                )
                for codes, figures in (
                    (1, ("81.9", "83.2", "82.9")),
                    (4, ("83.8", "83.4", "82.8", "82.9")),
                    (16, ("84.4", "85.2", "83.9", "83.8")),
                    (64, ("84.9", "86.0", "84.9", "85.0")),
                    (360, ("85.3", "86.3", "86.3", "86.2")),
                )
            ),
            (
                "8: contexts of 120 tokens", _ON_MINILM.replace("tokens 48", "tokens 120"), 1,
                {
                    "poly 64 learnt": "84.9", "poly 64 first_m": "86.0",
                    "poly 64 last_m": "84.9", "poly 64 last_m_and_first": "85.0",
                },
            ),
            (
                "8: means as candidates", _ON_MINILM, 1,
                {"poly 16 learnt mean": "84.4", "poly 64 learnt mean": "84.9"},
            ),
            (
                "8: outputs as context vectors, means as candidates", _ON_MINILM, 1,
                {
                    "poly 64 first_m mean": "86.0", "poly 64 last_m mean": "84.9",
                    "poly 4 last_m mean": "82.8",
                },
            ),
            (
                "8: means as candidates, at a smaller scale", _ON_MINILM, 1,
                {
                    "bi mean at a scale of 0.1": "",
                    "poly 64 learnt mean at a scale of 0.1": "84.9",
                    "poly 64 last_m mean at a scale of 0.1": "84.9",
                },
            ),
            (
                "8: a smaller scale, other context vectors", _ON_MINILM, 1,
                {
                    "poly 1 last_m mean at a scale of 0.1": "82.9",
                    "poly 4 last_m mean at a scale of 0.1": "82.8",
                    "poly 16 last_m mean at a scale of 0.1": "83.9",
                    "poly 4 first_m mean at a scale of 0.1": "83.4",
                    "poly 64 first_m mean at a scale of 0.1": "86.0",
                    "poly 64 last_m at a scale of 0.1": "84.9",
                },
            ),
            (
                "4: two transformers, MiniLM", _ON_MINILM, 1, {"bi mean separate trunks": "83.3"},
            ),
        )
    ),
    *(
        Cell(
            f"poly 4: fine-tuned from MiniLM, {name}",
            _heads(
                ",".join(figures),
                f"--data {train} --eval_data {test} {_ON_MINILM_3.format(jointly)}",
            ),
            3,
            figures,
        )
        for name, train, test, jointly, figures in (
            (
                "ConvAI2", "train_self_original.txt", "valid_self_original.txt", 200,
                _of_poly_4("83.3", "84.4", "84.9", "85.3", "87.1"),
            ),
            (
                "DSTC7", "ubuntu_train_subtask_1.json", "ubuntu_test_subtask_1.json", 40,
                _of_poly_4("66.8", "67.8", "67.0", "68.9", "67.4"),
            ),
            (
                "Ubuntu V2", "train.csv", "test.csv", 200,
                _of_poly_4("80.6", "81.2", "81.3", "80.9", "82.8"),
            ),
            (
                "articles", "articles_train.txt", "articles_test.txt", 0,
                _of_poly_4("", "", "", ""),
            ),
        )
    ),
    *(
        Cell(
            f"poly 4, 10: {name}, {steps:,} steps at {rate}",
            (
                f"python benchmarks/heads.py --task records --trunk {trunk} --data REDDIT "
                f"--eval_data REDDIT --examples {16 * steps} --batch_size 16 --evaluated 1000 "
                f"--evaluated_jointly 500 --learning_rate {rate} --max_context_tokens 48 "
                "--freeze nothing --seeds 1 --heads bi,cross --output RUN/heads.json",
            ),
        )
        for name, trunk, rates in (
            ("a small ConveRT trunk", "TINY", ("1e-3", "3e-4")),
            ("the trunk from Reddit, on Reddit", "REDDIT_BERT", ("1e-3",)),
        )
        for steps in (69, 6_900)
        for rate in rates
    ),
    *(
        Cell(
            f"poly 4, 10: pre-trained on {pretrained}, {name}",
            _heads(heads, f"{data} {_ON_OWN_TRUNK.format(examples, trunk)}"),
            3,
            figures,
        )
        for heads, pretrained, trunk, name, data, examples, figures in (
            (
                _ALL_HEADS, "Reddit", "REDDIT_BERT", "ConvAI2", _OF_CONVAI2, 9000,
                {
                    "bi": "86.9", "poly 16 learnt": "88.6", "poly 64 learnt": "89.0",
                    "poly 360 learnt": "89.2", "cross": "90.3",
                },
            ),
            (
                _ALL_HEADS, "documents", "DOCUMENTS_BERT", "ConvAI2", _OF_CONVAI2, 9000,
                {
                    "bi": "84.6", "poly 16 learnt": "85.4", "poly 64 learnt": "85.6",
                    "poly 360 learnt": "86.1", "cross": "87.3",
                },
            ),
            (
                "bi,poly 16 learnt", "Reddit", "REDDIT_BERT", "articles", _OF_ARTICLES, 1800,
                {"bi": "71.0", "poly 16 learnt": "71.5"},
            ),
            (
                "bi,poly 16 learnt", "documents", "DOCUMENTS_BERT", "articles", _OF_ARTICLES, 1800,
                {},
            ),
        )
    ),
)  # fmt: skip
