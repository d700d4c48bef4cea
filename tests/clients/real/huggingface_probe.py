"""Open a folder from `export --format huggingface` in a third-party program and compare vectors.

    python huggingface_probe.py FOLDER VECTORS.npz sentence-transformers

The `.npz` contains texts and the vectors of `SentenceEncoder`. The script does not need convert_tf.
"""

import importlib.metadata
import json
import sys
import tempfile
from collections.abc import Callable, Sequence

import numpy as np

folder, vectors_file, program = sys.argv[1:]
expected = dict(np.load(vectors_file))
texts: list[str] = expected.pop("texts").tolist()
LABELS = ["password", "dinner"]
EXAMPLES = {
    "how do I reset my password?": 0,
    "my password does not work": 0,
    "I cannot log in any more": 0,
    "please send me a new password": 0,
    "what did you have for dinner?": 1,
    "the pasta was great": 1,
    "let us cook something tonight": 1,
    "I am hungry, what is there to eat?": 1,
}


def difference(vectors: Sequence, kind: str = "default") -> float:
    """Return the largest difference relative to the largest value; excess columns must be zero."""
    found, wanted = np.asarray(vectors, np.float32), expected[kind]
    assert not found[:, wanted.shape[1] :].any(), "values after the end of a vector"
    return float(np.abs(found[:, : wanted.shape[1]] - wanted).max() / np.abs(wanted).max())


def opened(**options):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(folder, trust_remote_code=True, device="cpu", **options)


def all_kinds(encoder) -> dict[str, float]:
    return {
        "encode": difference(encoder.encode(texts)),
        "encode_query": difference(encoder.encode_query(texts), "similarity"),
        "encode_document": difference(encoder.encode_document(texts), "similarity"),
        **{
            kind: difference(encoder.encode(texts, prompt_name=kind), kind)
            for kind in ("context", "response", "similarity", "reduced")
        },
    }


def sentence_transformers() -> dict[str, float]:
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    encoder = opened()
    evaluator = EmbeddingSimilarityEvaluator(texts, texts[::-1], list(range(len(texts))))
    assert evaluator(encoder)
    with tempfile.TemporaryDirectory() as saved:
        encoder.save_pretrained(saved)
        again = type(encoder)(saved, trust_remote_code=True, device="cpu")
        shown = {**all_kinds(encoder), "saved and opened": difference(again.encode(texts))}
    for name in ("half", "bfloat16"):
        vectors = getattr(opened(), name)().encode(texts, convert_to_tensor=True)
        shown[name] = difference(vectors.float().numpy())
        assert shown[name] < 0.05, shown
    return shown


def sentence_transformers_onnx() -> dict[str, float]:
    shown = {}
    for name, file in (("32", "model"), ("8", "model_quantized")):
        options = {"file_name": f"onnx/{file}.onnx", "provider": "CPUExecutionProvider"}
        encoder = opened(backend="onnx", model_kwargs=options)
        if name == "32":
            shown = all_kinds(encoder)
        shown[f"encode, {name} bits"] = difference(encoder.encode(texts), f"default_{name}")
    return shown


def setfit() -> dict[str, float]:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(folder, trust_remote_code=True, labels=LABELS)
    data = Dataset.from_dict({"text": [*EXAMPLES], "label": [*EXAMPLES.values()]})
    model.fit([*EXAMPLES], [*EXAMPLES.values()], num_epochs=1)  # trains only the head
    frozen = model.predict(["I forgot my password", "soup for dinner"])
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), batch_size=8, max_steps=5, report_to="none"
    )
    before = model.model_body.encode(texts)
    Trainer(model=model, args=arguments, train_dataset=data).train()
    trained = model.predict(["I forgot my password", "soup for dinner"])
    assert list(frozen) == list(trained) == LABELS, (frozen, trained)
    change = float(np.abs(model.model_body.encode(texts) - before).max())
    assert change > 0, "the body was not trained"
    return {"frozen": difference(before), "trained changes by": change}


def fastembed() -> dict[str, float]:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    shown = {}
    for name, file in (("32", "onnx/model.onnx"), ("8", "onnx/model_quantized.onnx")):
        TextEmbedding.add_custom_model(
            model=f"convert_tf/{name}",
            pooling=PoolingType.CLS,
            normalization=False,
            sources=ModelSource(hf="convert_tf/none"),
            dim=expected["default"].shape[1],
            model_file=file,
        )
        encoder = TextEmbedding(f"convert_tf/{name}", specific_model_path=folder)
        shown[f"{name} bits"] = difference([*encoder.embed(texts)], f"default_{name}")
    return shown


def mteb() -> dict[str, float]:
    import mteb
    from datasets import Dataset, DatasetDict

    encoder = opened()
    examples = Dataset.from_dict({"text": [*EXAMPLES], "label": [*EXAMPLES.values()]})
    first, second = texts * 2, texts + texts[1:] + texts[:1]
    pairs = {
        "sentence1": first,
        "sentence2": second,
        "score": [5.0] * len(texts) + [0.0] * len(texts),
    }
    data = {
        "Banking77Classification": DatasetDict(train=examples, test=examples),
        "STSBenchmark": DatasetDict(test=Dataset.from_dict(pairs)),
    }
    tasks = []
    for name, own in data.items():  # two mteb tasks on data that does not come from the hub
        task = mteb.get_task(name)
        task.dataset, task.data_loaded = own, True
        tasks.append(task)
    results = mteb.evaluate(encoder, tasks, cache=None).task_results
    scores = {result.task_name: float(result.get_score()) for result in results}
    assert scores["Banking77Classification"] == 1, scores
    assert scores["STSBenchmark"] > 0.8, scores
    return {"encode": difference(encoder.encode(texts)), **scores}


def langchain() -> dict[str, float]:
    from langchain_huggingface import HuggingFaceEmbeddings

    options = {"trust_remote_code": True, "device": "cpu"}
    encoder = HuggingFaceEmbeddings(model_name=folder, model_kwargs=options)
    assert difference([encoder.embed_query(texts[0])], "default") >= 0
    return {"embed_documents": difference(encoder.embed_documents(texts))}


def llama_index() -> dict[str, float]:
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    encoder = HuggingFaceEmbedding(
        folder,
        trust_remote_code=True,
        device="cpu",
        normalize=False,
        query_instruction="\ufdd0context",
        text_instruction="\ufdd0response",
    )
    return {
        "texts": difference(encoder.get_text_embedding_batch(texts), "response"),
        "queries": difference([encoder.get_query_embedding(each) for each in texts], "context"),
    }


def haystack() -> dict[str, float]:
    from haystack import Document
    from haystack_integrations.components.embedders.sentence_transformers import (
        SentenceTransformersDocumentEmbedder,
    )

    embedder = SentenceTransformersDocumentEmbedder(model=folder, trust_remote_code=True)
    embedder.warm_up()
    documents = embedder.run([Document(content=text) for text in texts])["documents"]
    return {"documents": difference([document.embedding for document in documents])}


def keybert() -> dict[str, float]:
    from keybert import KeyBERT

    encoder = opened()
    words = KeyBERT(encoder).extract_keywords("the parcel came late and the box was broken")
    assert words and {word for word, _ in words} <= {"parcel", "came", "late", "box", "broken"}
    return {"encode": difference(encoder.encode(texts))}


def bertopic() -> dict[str, float]:
    from bertopic import BERTopic
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    encoder, documents = opened(), [*EXAMPLES] * 3
    model = BERTopic(
        embedding_model=encoder, umap_model=PCA(2), hdbscan_model=KMeans(2, random_state=0)
    )
    topics, _ = model.fit_transform(documents)
    labels = [*EXAMPLES.values()] * 3
    agree = np.mean(np.array(topics) == labels)
    return {"encode": difference(encoder.encode(texts)), "topics right": max(agree, 1 - agree)}


def txtai() -> dict[str, float]:
    from txtai import Embeddings

    options = {"trust_remote_code": True}
    embeddings = Embeddings(path=folder, method="sentence-transformers", vectors=options)
    embeddings.index(texts)
    assert embeddings.search(texts[0], 1)[0][0] == 0
    return {"queries": difference(embeddings.batchtransform(texts), "similarity")}


PROGRAMS: dict[str, tuple[str, Callable[[], dict[str, float]]]] = {
    "sentence-transformers": ("sentence-transformers", sentence_transformers),
    "sentence-transformers, ONNX": ("sentence-transformers", sentence_transformers_onnx),
    "SetFit": ("setfit", setfit),
    "fastembed": ("fastembed", fastembed),
    "mteb": ("mteb", mteb),
    "LangChain": ("langchain-huggingface", langchain),
    "LlamaIndex": ("llama-index-embeddings-huggingface", llama_index),
    "Haystack": ("sentence-transformers-haystack", haystack),
    "KeyBERT": ("keybert", keybert),
    "BERTopic": ("bertopic", bertopic),
    "txtai": ("txtai", txtai),
}

if __name__ == "__main__":
    package, probe = PROGRAMS[program]
    facts = {name: f"{value:.2g}" for name, value in probe().items()}
    print(json.dumps({"version": importlib.metadata.version(package), **facts}))
