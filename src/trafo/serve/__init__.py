"""The service: `trafo serve RUN...` answers OpenAI clients and shows a page.

Needs the extra `serve`.
"""
