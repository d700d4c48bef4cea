"""The real sentence-transformers, SetFit, LangChain and mteb on encoders of ours.

They bring torch, which the tests' environment has not: `docs/encode.md` says how to run these.
"""

import copy

import numpy as np
import pytest
from support.tiny_checkpoint import random_texts

from convert_tf import SentenceEncoder

TEXTS = random_texts(24)
LABELS = ["a" if "a" in text.split()[0] else "b" for text in TEXTS]
SENTENCE_TRANSFORMERS = "sentence_transformers"


@pytest.fixture(scope="module")
def encoder(tiny_modules):
    return SentenceEncoder(tiny_modules["single"][1])


def cosines(encoder, first, second):
    a, b = (encoder.encode(texts) for texts in (first, second))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(1) / lengths


def test_evaluator_of_similarity(encoder):
    evaluation = pytest.importorskip(f"{SENTENCE_TRANSFORMERS}.sentence_transformer.evaluation")
    from scipy.stats import spearmanr

    scores = np.linspace(0, 1, 12)
    evaluator = evaluation.EmbeddingSimilarityEvaluator(TEXTS[:12], TEXTS[12:], scores, name="t")
    found = evaluator(encoder)
    expected = spearmanr(scores, cosines(encoder, TEXTS[:12], TEXTS[12:])).statistic
    assert found["t_spearman_cosine"] == pytest.approx(expected, abs=1e-3)
    assert encoder.model_card_data.metrics["t_spearman_cosine"] == found["t_spearman_cosine"]


def test_evaluators_of_retrieval_triplets_and_pairs(encoder):
    evaluation = pytest.importorskip(f"{SENTENCE_TRANSFORMERS}.sentence_transformer.evaluation")
    corpus = {str(i): text for i, text in enumerate(dict.fromkeys(TEXTS))}
    evaluator = evaluation.InformationRetrievalEvaluator(
        {key: text for key, text in corpus.items() if int(key) < 4},
        corpus,
        {key: {key} for key in corpus},
        name="r",
    )
    assert evaluator(encoder)["r_cosine_accuracy@1"] == 1
    triplets = evaluation.TripletEvaluator(TEXTS[:3], TEXTS[:3], TEXTS[3:6], name="t")
    assert triplets(encoder)["t_cosine_accuracy"] == 1
    pairs = evaluation.BinaryClassificationEvaluator(
        TEXTS[:6], [*TEXTS[:3], *TEXTS[9:12]], [1, 1, 1, 0, 0, 0], name="p"
    )
    assert pairs(encoder)["p_cosine_accuracy"] == 1
    samples = [{"query": TEXTS[0], "positive": [TEXTS[0]], "negative": TEXTS[3:9]}]
    reranking = evaluation.RerankingEvaluator(samples, name="k")
    assert reranking(encoder)["k_map"] == 1


def test_mining_and_clustering_functions(encoder):
    """`util` of sentence-transformers takes tensors and asks the model for nothing."""
    pytest.importorskip(SENTENCE_TRANSFORMERS)
    from sentence_transformers import util

    embeddings = encoder.encode(TEXTS, convert_to_tensor=True)
    hits = util.semantic_search(embeddings[:2], embeddings, top_k=1)
    assert [hit[0]["corpus_id"] for hit in hits] == [0, 1]


def test_a_frozen_body_of_setfit(encoder):
    setfit = pytest.importorskip("setfit")
    from sklearn.linear_model import LogisticRegression

    def fitted(*, normalize):
        head = LogisticRegression(C=100, max_iter=1000)
        model = setfit.SetFitModel(
            model_body=encoder, model_head=head, normalize_embeddings=normalize
        )
        model.fit(TEXTS, LABELS, num_epochs=1)
        return model

    model = fitted(normalize=False)
    by_hand = LogisticRegression(C=100, max_iter=1000).fit(encoder.encode(TEXTS), LABELS)
    assert [*model.predict(TEXTS)] == [*by_hand.predict(encoder.encode(TEXTS))]
    np.testing.assert_allclose(
        model.predict_proba(TEXTS, as_numpy=True),
        by_hand.predict_proba(encoder.encode(TEXTS)),
        atol=1e-4,
    )
    assert model(TEXTS[0]) in LABELS
    assert str(model.device) == "cpu"
    assert len(fitted(normalize=True).predict(TEXTS[:3])) == 3


@pytest.mark.parametrize("documents", ["texts", "responses"])
def test_a_store_of_langchain(tiny_modules, documents):
    pytest.importorskip("langchain_core")
    from langchain_core.vectorstores import InMemoryVectorStore

    from convert_tf.encoding.langchain import ConvertEmbeddings

    embeddings = ConvertEmbeddings(tiny_modules["single"][1], documents=documents)
    encoder = SentenceEncoder(tiny_modules["single"][1])
    texts = [*dict.fromkeys(TEXTS)]
    store = InMemoryVectorStore.from_texts(texts, copy.deepcopy(embeddings))
    ((found, score),) = store.similarity_search_with_score(texts[3], k=1)
    if documents == "texts":
        best, cosine = texts[3], 1.0
        np.testing.assert_allclose(embeddings.embed_query("a"), encoder.encode("a"), atol=1e-6)
        assert not np.isclose(np.linalg.norm(embeddings.embed_documents(["a"])), 1)
    else:
        ((best, cosine),) = encoder.rank(texts[3], texts, top_k=1)
    assert found.page_content == best
    assert score == pytest.approx(cosine, abs=1e-4)
    for empty in ("", " \n"):
        with pytest.raises(ValueError, match="A query must hold more"):
            store.similarity_search(empty, k=1)
    if documents == "texts":
        with pytest.raises(ValueError, match="Received: '' at index 1"):
            store.add_texts(["a", ""])
    with pytest.raises(ValueError, match="Received: 'answers'"):
        ConvertEmbeddings(encoder, documents="answers")


def _task(mteb, datasets):
    """A task of classification whose data is here and not downloaded."""
    from mteb.abstasks.classification import AbsTaskClassification
    from mteb.abstasks.task_metadata import TaskMetadata

    class OwnClassification(AbsTaskClassification):
        metadata = TaskMetadata(
            name="OwnClassification",
            description="-",
            dataset={"path": "own/own", "revision": "1"},
            type="Classification",
            category="t2c",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="accuracy",
        )
        n_experiments = 2
        samples_per_label = 4

        def load_data(self, **_):
            numbers = [int(label == "a") for label in LABELS]
            rows = datasets.Dataset.from_dict({"text": TEXTS, "label": numbers})
            self.dataset = datasets.DatasetDict({"train": rows, "test": rows})
            self.data_loaded = True

    return OwnClassification()


def test_a_task_of_mteb(encoder, monkeypatch, tmp_path):
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path))
    from convert_tf.encoding.mteb import MtebEncoder

    model = MtebEncoder(encoder, name="us/tiny", revision="7")
    assert model.mteb_model_meta.embed_dim == encoder.encode("a").shape[0]
    results = mteb.evaluate(model, _task(mteb, datasets), cache=None)
    (result,) = results.task_results
    assert (results.model_name, results.model_revision) == ("us/tiny", "7")
    assert 0.5 < result.get_score() <= 1
    batches = [{"text": TEXTS[:5]}, {"text": TEXTS[5:7]}]
    vectors = model.encode(
        batches, task_metadata=None, hf_split="test", hf_subset="default", batch_size=2
    )
    np.testing.assert_array_equal(vectors, encoder.encode(TEXTS[:7], batch_size=2))
    assert float(model.similarity(vectors[:1], vectors[:1])) == pytest.approx(1, abs=1e-5)
